--- Makes docs/api.md: all modules, types and ops of the core on one page.
-- @module moonreel.api.page
local api = require "moonreel.api"

local page = {}

-- escapes a text for the cell of a table
local function cell(text) return (text:gsub("|", "\\|")) end

local function options_text(row)
  local parts = {}
  for i, option in ipairs(row.options or {}) do
    local default = api.default_text(option)
    parts[i] = ("`%s` %s%s: %s"):format(option.name, option.type,
      default and " (" .. default .. ")" or "", option.doc)
  end
  return #parts > 0 and "<br>" .. table.concat(parts, "<br>") or ""
end

local function add_face(lines, face, mark)
  table.move({ "", "### " .. face.name, "", face.doc, "", "| | |", "|---|---|" }, 1, 7, #lines + 1,
    lines)
  for _, row in ipairs(face.rows) do
    if not row.name:match("^__") then
      local form = row.call and mark .. row.name .. row.type or "." .. row.name .. ": " .. row.type
      lines[#lines + 1] = ("| `%s` | %s |"):format(cell(form), cell(row.doc .. options_text(row)))
    end
  end
end

local function add_ops(lines)
  for _, op in ipairs(require("moonreel.core.api").ops()) do
    local given, attributes, out = {}, {}, {}
    for i, one in ipairs(op.inputs) do
      given[i] = ("%s: %s"):format(one.name, one.type)
    end
    for i, one in ipairs(op.attrs) do
      attributes[i] = ("%s = %.14g"):format(one.name, one.default)
    end
    for i, one in ipairs(op.outputs) do
      out[i] = ("%s: %s"):format(one.name, one.type)
    end
    if #attributes > 0 then
      given[#given + 1] = "{" .. table.concat(attributes, ", ") .. "}"
    end
    lines[#lines + 1] = ("| `%s` | %s | %s |"):format(op.name,
      cell(table.concat(given, "<br>")), cell(table.concat(out, "<br>")
        .. (#out > 0 and "<br>" or "") .. op.doc .. (op.ref and " Ref: " .. op.ref or "")))
  end
end

--- Makes the page.
---@return string
function page.markdown()
  local lines = { "# Modules, types and ops of the core", "",
    "Made from the rows of the bindings: `moonreel help api --markdown`. `?` marks arguments "
      .. "that may be left out; options are listed with their defaults.",
    "At the prompt `help(T.new)`, `help(t.slice)` print the same texts; Lua modules above "
      .. "the core are documented by comments in their files.", "", "## Modules" }
  for _, name in ipairs(api.names "module") do
    add_face(lines, api.faces()[name], "")
  end
  table.move({ "", "## Types", "",
    "`dtype` is one of f64, f32, bf16, i64, i32, u8, bool, f8_e4m3, f8_e5m2. Objects with "
      .. "`close()` free their resources at once; else the garbage collector frees them later." },
      1, 4,
    #lines + 1, lines)
  for _, name in ipairs(api.names "type") do
    add_face(lines, api.faces()[name], ":")
  end
  table.move({ "", "## Ops", "", "`require \"moonreel.core.op\"`: `ops.NAME(inputs, ..., "
    .. "{attributes})` on tensors, or on values of a graph; `false` for an input that is absent.",
    "", "| | inputs | outputs |", "|---|---|---|" }, 1, 7, #lines + 1, lines)
  add_ops(lines)
  return table.concat(lines, "\n") .. "\n"
end

return page
