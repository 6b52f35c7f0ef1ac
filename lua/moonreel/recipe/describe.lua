--- Describes fields of recipes in words, for help and completion.
-- @module moonreel.recipe.describe
local kinds = require "moonreel.recipe.kinds"
local peers = require "moonreel.recipe.peers"
local registry = require "moonreel.recipe.registry"

local describe = {}

local function kind_text(schema)
  if schema.word then
    return kind_text(setmetatable({ word = false }, { __index = schema })) .. ", or " .. schema.word
  elseif schema.tag == "list" then
    return "list of " .. kind_text(schema.element)
  end
  if schema.tag == "map" then
    return (schema.key == "integer" and "integer" or "name") .. " -> " .. kind_text(schema.value)
  end
  if schema.tag == "record" then
    return "record"
  end
  return schema.tag
end

local function value_text(value)
  local text = kinds.show(value)
  return #text > 60 and "(a table)" or text
end

local function default_text(row)
  return type(row.default) == "function" and "computed" or value_text(row.default)
end

-- other names of a field: of the references, then of other trainers
local function spellings_text(row)
  local names = table.move(row.spellings or {}, 1, #(row.spellings or {}), 1, {})
  local of_peers = peers.same[row.path] or {}
  table.move(of_peers, 1, #of_peers, #names + 1, names)
  return #names > 0 and table.concat(names, ", ") or nil
end

--- All fields by path. A field that several types have appears once, unless `each` is set.
---@param each boolean|nil
---@return table[]  {field, kind, default, spellings, affects, resume, reader, help, unit: texts;
---   row: the row of the registry}
function describe.fields(each)
  local seen, rows = {}, {}
  for _, row in ipairs(registry.get().rows) do
    if each or not seen[row.path] then
      seen[row.path] = true
      rows[#rows + 1] = { field = row.path, kind = kind_text(kinds.schema(row[2], row)),
        default = default_text(row),
        spellings = spellings_text(row),
          affects = row.affects, resume = row.resume,
        reader = row.no_meaning and "no meaning here" or row.reader or "not built yet",
          help = row.help, unit = row.unit, row = row }
    end
  end
  table.sort(rows, function(a, b)
    if a.field ~= b.field then
      return a.field < b.field
    end
    return table.concat(a.row.types or {}, " ") < table.concat(b.row.types or {}, " ")
  end)
  return rows
end

--- The fields of a record, in the form of `fields`. If the fields depend on a type, these are the
-- fields of one type, with the defaults that it gives; or those of all types, with the default "by
-- type" where they differ.
---@param record string
---@param of_type string|nil
---@return table[] rows
---@return table types   the types of the record: {type, help}, by name; empty if it has no types
function describe.record(record, of_type)
  local known = registry.get().root
  for key in record:gmatch "[^.]+" do
    known = known.fields[key]
  end
  local rows, at, types = {}, {}, {}
  for _, one in ipairs(describe.fields(true)) do
    local key = one.field:sub(1, #record + 1) == record .. "." and one.field:sub(#record + 2)
    local belongs = not of_type or not one.row.types
    for _, name in ipairs(key and of_type and one.row.types or {}) do
      belongs = belongs or name == of_type
      local preset = name == of_type and known.types[name].preset[key]
      one.default = preset ~= nil and preset ~= false and value_text(preset) or one.default
    end
    local twin = key and at[key]
    if key and belongs and not twin then
      rows[#rows + 1], at[key] = one, one
    elseif key and belongs and twin.default ~= one.default then
      twin.default = "by type"
    end
  end
  for name, type_row in pairs(known.types or {}) do
    types[#types + 1] = { type = name, help = type_row.help }
  end
  table.sort(types, function(a, b) return a.type < b.type end)
  return rows, types
end

-- the cell about values: choices and ranges, if the field has any
local function values_text(row)
  local schema = kinds.schema(row[2], row)
  if schema.choices then
    local choices = {}
    for i, choice in ipairs(schema.choices) do
      choices[i] = "`" .. choice .. "`"
    end
    return table.concat(choices, " ")
  end
  return type(row[2]) == "string"
    and kinds.expected(kinds.schema(row[2], { min = row.min, max = row.max, word = row.word }))
    or kind_text(schema)
end

-- other names of a whole record
local function record_names(record)
  local names = {}
  for spelling, keys in pairs(registry.get().spellings) do
    if table.concat(keys, ".") == record then
      names[#names + 1] = "`" .. spelling .. "`"
    end
  end
  table.sort(names)
  return #names > 0 and ", also " .. table.concat(names, ", ") or ""
end

--- All fields as one page of Markdown, a section per record.
---@return string
function describe.markdown()
  local section
  local lines = { "# Fields of recipes\n\nMade from the registry: `moonreel help fields "
    .. "--markdown`. *Resume*: what a restart with "
    .. "another value does. *Not built*: `show` works,\n`train` refuses. Fields of a record with a "
      .. "`type` belong to some of its types; "
    .. "`moonreel help FIELD` says more." }
  local rows = describe.fields()
  local function record_of(one) return one.field:match("^(.-)%.") or "" end
  table.sort(rows, function(a, b)
    if record_of(a) ~= record_of(b) then
      return record_of(a) < record_of(b)
    end
    return a.field < b.field
  end)
  for _, one in ipairs(rows) do
    local record = record_of(one)
    if record ~= section then
      section = record
      lines[#lines + 1] = "\n## " .. (section == "" and "the run" or section
        .. record_names(section))
      lines[#lines + 1] = "\n| field | values | default | also | resume | "
        .. "|\n|---|---|---|---|---|---|"
    end
    local row = one.row
    local cells = { "`" .. one.field .. "`", values_text(row), "`" .. one.default .. "`",
      one.spellings or "", one.resume,
      one.help .. (one.unit and " (" .. one.unit .. ")" or "")
        .. (row.no_meaning and "; no meaning here: " .. row.no_meaning or row.reader == false
          and "; **not built**" or "") }
    for i, cell in ipairs(cells) do
      cells[i] = cell:gsub("|", "\\|")
    end
    lines[#lines + 1] = "| " .. table.concat(cells, " | ") .. " |"
  end
  return table.concat(lines, "\n") .. "\n"
end

return describe
