--- Settings as text: settings.json with origins, and a flattened recipe. Both bake to the same
-- hash.
-- @module moonreel.settings.store
local base = require "moonreel.core.base"
local environment = require "moonreel.recipe.environment"
local json = require "moonreel.core.json"
local kinds = require "moonreel.recipe.kinds"
local marker = require "moonreel.recipe.marker"

local store = {}

-- A value in the form of JSON. An empty list stays a list.
local function to_value(raw, schema)
  local value = marker.plain(raw, json.null)
  return schema and schema.tag == "list" and type(value) == "table" and json.array(value) or value
end

--- The nested form of JSON: none is null, integer keys are text.
---@param leaves table[]  from settings:leaves()
---@return table
function store.tree(leaves)
  local root = {}
  for _, leaf in ipairs(leaves) do
    local at = root
    for i = 1, #leaf.keys - 1 do
      local key = tostring(leaf.keys[i])
      at[key] = at[key] or {}
      at = at[key]
    end
    at[tostring(leaf.keys[#leaf.keys])] = to_value(leaf.raw, leaf.schema)
  end
  return root
end

--- The origin of each leaf.
function store.origins(leaves)
  local origins = {}
  for _, leaf in ipairs(leaves) do
    local chain = {}
    for i, link in ipairs(leaf.chain) do
      chain[i] = { at = link.at, value = link.value, reads = link.reads and json.array(link.reads),
        command_line = link.command_line, set = link.set, replace = link.replace }
    end
    origins[leaf.path] = json.array(chain)
  end
  return origins
end

-- A checksum over the values as a file has them, and the hash when it was written. It detects an
-- edited file, whatever fields this version has.
function store.sum_of(tree, settings_hash)
  return base.hash128(settings_hash .. json.encode(tree))
end

local function plain_list(list) return json.array(table.move(list, 1, #list, 1, {})) end

---@param settings table
---@return string text
function store.to_json(settings)
  local leaves = settings:leaves()
  local tree = store.tree(leaves)
  return json.encode({
    hash = settings.hash, sum = store.sum_of(tree, settings.hash), recipe = settings.recipe,
    removed = store.origins(settings:removed()), arguments = plain_list(settings.arguments),
    notes = plain_list(settings.notes), settings = tree, origin = store.origins(leaves),
  }, { indent = 2 }) .. "\n"
end

--- Was the value set by the last link of a chain?
function store.is_set(chain)
  local link = chain and chain[#chain]
  return link ~= nil and link.set == true
end

-- Lua source of a value
local function source(value)
  if value == nil or value == marker.none then
    return "recipe.none"
  end
  if value == marker.previous then
    return "recipe.previous"
  end
  if type(value) ~= "table" then
    return kinds.show(value)
  end
  local parts, n = {}, #value
  for i = 1, n do
    parts[i] = source(value[i])
  end
  for _, key in ipairs(environment.sorted_keys(value)) do
    if not (math.type(key) == "integer" and key >= 1 and key <= n) then
      parts[#parts + 1] = ("[%s] = %s"):format(kinds.show(key), source(value[key]))
    end
  end
  return "{ " .. table.concat(parts, ", ") .. (#parts > 0 and " }" or "}")
end

--- A recipe without parents that sets every leaf that differs from its default.
---@param settings table
---@return string text
function store.to_recipe(settings)
  local root, whole, leaves = {}, {}, settings:leaves()
  -- a map with a default is written as a whole if one of its leaves is set
  local function in_map_with_default(leaf)
    return leaf.row.default ~= nil and leaf.row.path ~= leaf.path
  end
  for _, leaf in ipairs(leaves) do
    if in_map_with_default(leaf) and store.is_set(leaf.chain) then
      whole[leaf.row.path] = true
    end
  end
  for _, leaf in ipairs(leaves) do
    local wanted = store.is_set(leaf.chain)
    if in_map_with_default(leaf) then
      wanted = whole[leaf.row.path]
    end
    if wanted then
      local at = root
      for i = 1, #leaf.keys - 1 do
        at[leaf.keys[i]] = at[leaf.keys[i]] or { children = {} }
        at = at[leaf.keys[i]].children
      end
      at[leaf.keys[#leaf.keys]] = { text = source(leaf.raw) }
    end
  end
  local lines = { "-- written by moonreel; bakes to " .. settings.hash, "return recipe {" }
  local function write(children, indent, path)
    for _, key in ipairs(environment.sorted_keys(children)) do
      local child = children[key]
      local name = type(key) == "string" and key:match("^[%a_][%w_]*$") and key
        or "[" .. kinds.show(key) .. "]"
      if child.text then
        lines[#lines + 1] = indent .. name .. " = " .. child.text .. ","
      else
        local inner = path == "" and tostring(key) or path .. "." .. tostring(key)
        lines[#lines + 1] = indent .. name .. (whole[inner] and " = recipe.replace {" or " = {")
        write(child.children, indent .. "  ", inner)
        lines[#lines + 1] = indent .. "},"
      end
    end
  end
  write(root, "  ", "")
  lines[#lines + 1] = "}"
  return table.concat(lines, "\n") .. "\n"
end

return store
