--- Makes stubs of the bindings for the Lua language server of an editor.
-- @module moonreel.api.stubs
local api = require "moonreel.api"

local stubs = {}

local head = "-- Made from the rows of the bindings: moonreel help stubs DIR\n"

-- adds the class of a function's options; returns its name
local function add_options(lines, owner, row)
  if not row.options then
    return nil
  end
  local class = ("%s.%s.options"):format(owner, row.name)
  lines[#lines + 1] = "---@class " .. class
  for _, option in ipairs(row.options) do
    local default = api.default_text(option)
    lines[#lines + 1] = ("---@field %s? %s %s%s"):format(option.name, option.type, option.doc,
      default and " Default: " .. default .. "." or "")
  end
  lines[#lines + 1] = ""
  return class
end

local function add_function(lines, owner, holder, mark, row)
  local class = add_options(lines, owner, row)
  local arguments, results = api.signature(row)
  local names = {}
  lines[#lines + 1] = "--- " .. row.doc
  for i, one in ipairs(arguments) do
    names[i] = one.name
    lines[#lines + 1] = ("---@param %s%s %s"):format(one.name, one.optional and "?" or "",
      one.name == "options" and class or one.type)
  end
  for _, result in ipairs(results) do
    lines[#lines + 1] = "---@return " .. (result == "..." and "any ..." or result)
  end
  lines[#lines + 1] = ("function %s%s%s(%s) end"):format(holder, mark, row.name,
    table.concat(names, ", "))
  lines[#lines + 1] = ""
end

-- adds a class with its fields, operators and functions; the local `holder` contains it
local function add_class(lines, face, holder, mark)
  lines[#lines + 1] = ("--- %s\n---@class %s"):format(face.doc, face.name)
  for _, row in ipairs(face.rows) do
    local operator = row.name:match("^__(%a+)$")
    if not row.call then
      lines[#lines + 1] = ("---@field %s %s %s"):format(row.name, row.type, row.doc)
    elseif operator and operator ~= "index" and operator ~= "tostring" then
      local arguments, results = api.signature(row)
      lines[#lines + 1] = ("---@operator %s%s: %s"):format(operator,
        arguments[1] and "(" .. arguments[1].type .. ")" or "", results[1])
    elseif operator == "index" then
      lines[#lines + 1] = "---@field [integer|string] any " .. row.doc
    end
  end
  lines[#lines + 1] = ("local %s = {}"):format(holder)
  lines[#lines + 1] = ""
  for _, row in ipairs(face.rows) do
    if row.call and not row.name:match("^__") then
      add_function(lines, face.name, holder, mark, row)
    end
  end
end

local function module_text(face)
  local name = face.name:match("[^.]+$")
  local lines = { "---@meta " .. face.name, head }
  add_class(lines, face, name, ".")
  lines[#lines + 1] = "return " .. name
  return table.concat(lines, "\n") .. "\n"
end

local function types_text()
  local lines = { "---@meta", head,
    '---@alias mr.Dtype "f64"|"f32"|"bf16"|"i64"|"i32"|"u8"|"bool"|"f8_e4m3"|"f8_e5m2"', "" }
  for _, name in ipairs(api.names "type") do
    add_class(lines, api.faces()[name], name:match("[^.]+$"), ":")
  end
  return (table.concat(lines, "\n"):gsub("\n+$", "\n"))
end

local function ops_text()
  local face = { name = "moonreel.core.op", doc = "Ops on tensors and on values of graphs.",
    rows = {} }
  for i, op in ipairs(require("moonreel.core.api").ops()) do
    local inputs, outputs = {}, {}
    for k, one in ipairs(op.inputs) do
      inputs[k] = one.name .. "?: mr.Tensor|mr.Value|false"
    end
    if #op.attrs > 0 then
      inputs[#inputs + 1] = "attributes?: table"
    end
    for k = 1, #op.outputs do
      outputs[k] = "any"
    end
    face.rows[i] = { name = op.name, doc = op.doc, call = true,
      type = ("(%s): %s"):format(table.concat(inputs, ", "), table.concat(outputs, ", ")) }
  end
  return module_text(face)
end

--- All stubs, by path below the folder.
---@return table<string, string>
function stubs.files()
  local files = { ["moonreel/core/types.lua"] = types_text(),
    ["moonreel/core/op.lua"] = ops_text() }
  for _, name in ipairs(api.names "module") do
    files[name:gsub("%.", "/") .. ".lua"] = module_text(api.faces()[name])
  end
  return files
end

--- Writes all stubs below a folder; returns their paths.
---@param folder string
---@return string[]
function stubs.write(folder)
  local base, paths = require "moonreel.core.base", {}
  for path, text in pairs(stubs.files()) do
    paths[#paths + 1] = folder .. "/" .. path
    base.make_dir(paths[#paths]:match("^(.*)/"))
    base.replace_file(paths[#paths], text)
  end
  table.sort(paths)
  return paths
end

return stubs
