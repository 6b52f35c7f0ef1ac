--- A case of inheritance as ours: the reference's files rewritten as Lua recipes, the fields that
-- they speak of as rows of a registry, and what our rules make of them. Ref: opensora-2.0.md 7.1,
-- recipes.md 1 and 2.
-- @module spec.golden.runner.twins
local json = require "moonreel.core.json"
local kinds = require "moonreel.recipe.kinds"
local marker = require "moonreel.recipe.marker"
local python = require "spec.golden.runner.python"
local sorted_keys = require("moonreel.recipe.environment").sorted_keys

local twins = {}

-- a dictionary of the reference; lists are plain tables
local Dict = {}

local function is_dict(value) return getmetatable(value) == Dict end

-- names that the reference keeps for itself; no registry has them
local reserved = { filename = true, text = true, pretty_text = true, env_variables = true }

-- ---- files ----

-- a node of JSON
local function node_of(value)
  if value == json.null then
    return { op = "value", value = marker.none }
  elseif type(value) ~= "table" then
    return { op = "value", value = value }
  elseif json.is_array(value) or value.__tuple__ then
    local items = {}
    for i, item in ipairs(value.__tuple__ or value) do
      items[i] = node_of(item)
    end
    return { op = "list", items = items }
  end
  local pairs_of = {}
  for i, pair in ipairs(value.__dict__ or {}) do
    pairs_of[i] = { pair[1], node_of(pair[2]) }
  end
  if value.__dict__ then
    return { op = "dict", pairs = pairs_of }
  end
  for _, key in ipairs(sorted_keys(value)) do
    pairs_of[#pairs_of + 1] = { key, node_of(value[key]) }
  end
  return { op = "dict", pairs = pairs_of }
end

-- A field that the reader of Python cannot read has the value that the reference found for it.
local function read(case, name)
  local text = case.files[name]
  if name:match("%.json$") then
    return { bases = {}, fields = node_of(json.decode(text, name)).pairs }
  end
  return python.read(text, name, function(field)
    local value = (case.result or {})[field]
    if value == nil then
      error(("%s: the value of '%s' is beyond the reader of Python"):format(name, field), 0)
    end
    return node_of(value)
  end)
end

-- the file that a base names, counted from the file that names it
local function resolve(base, from)
  local path = (from:match("^(.*/)") or "") .. base
  repeat
    local shorter, n = path:gsub("[^/]+/%.%./", "", 1)
    path = shorter
  until n == 0
  return path
end

-- ---- values ----

local arithmetic = {
  ["+"] = function(a, b) return a + b end, ["-"] = function(a, b) return a - b end,
  ["*"] = function(a, b)
    if type(a) ~= "table" then
      return a * b
    end
    local out = {}
    for _ = 1, b do
      table.move(a, 1, #a, #out + 1, out)
    end
    return out
  end,
  ["/"] = function(a, b) return a / b end, ["//"] = function(a, b) return a // b end,
  ["%"] = function(a, b) return a % b end,
  ["^"] = function(a, b) return math.tointeger(a ^ b) or a ^ b end,
}

-- the value of a node; lookup(names, path) gives the value of a dotted name that stands in the
-- field at `path`
local function value_of(node, lookup, path)
  if node.op == "value" then
    return node.value
  elseif node.op == "name" then
    return lookup(node.path, path)
  elseif node.op == "negative" then
    return -value_of(node[1], lookup, path)
  elseif node.op == "binary" then
    return arithmetic[node[1]](value_of(node[2], lookup, path), value_of(node[3], lookup, path))
  elseif node.op == "list" then
    local out = {}
    for i, item in ipairs(node.items) do
      out[i] = value_of(item, lookup, path)
      if out[i] == marker.none then
        error(path .. ": lists of ours hold no none", 0)
      end
    end
    return out
  end
  local out = setmetatable({}, Dict)
  for _, pair in ipairs(node.pairs) do
    out[pair[1]] = value_of(pair[2], lookup, path .. "." .. tostring(pair[1]))
  end
  return out
end

-- does a name stand anywhere in a node?
local function has_name(node)
  if node.op == "name" then
    return true
  end
  for _, inner in ipairs(node.items or node) do
    if type(inner) == "table" and has_name(inner) then
      return true
    end
  end
  for _, pair in ipairs(node.pairs or {}) do
    if has_name(pair[2]) then
      return true
    end
  end
  return false
end

local function at_path(value, path, from)
  for i = from or 1, #path do
    value = is_dict(value) and value[path[i]]
    if value == nil or value == false and i < #path then
      error(table.concat(path, ".") .. " is not defined", 0)
    end
  end
  return value
end

-- ---- what our rules make of it ----

local function without_marks(value, why)
  if not is_dict(value) then
    return value
  end
  local out = setmetatable({}, Dict)
  for key, item in pairs(value) do
    if key == "_delete_" then
      why.mark = "marks never stay"
    else
      out[key] = without_marks(item, why)
    end
  end
  return out
end

-- what a field stays: a list, a number, a text or a flag; nil where nothing is said
local function kept(value)
  return value ~= marker.none and not is_dict(value) and value ~= nil and type(value) or nil
end

-- `child` over `base`, both dictionaries; a wrong kind raises {error}
local function merged(base, child, why, path)
  local out = setmetatable({}, Dict)
  for key, value in pairs(base) do
    out[key] = value
  end
  for key, value in pairs(child) do
    local shown = path .. tostring(key)
    local below = out[key]
    if key == "_delete_" then
      out[key] = nil
    elseif type(value) == "number" and value - value ~= 0 then
      error({ error = shown .. ": expected ", why = "numbers are finite" }, 0)
    elseif is_dict(below) and not is_dict(value) and type(value) == "table" and value[1] then
      error({ error = shown .. ": a record has named fields", why = "a record has its fields" }, 0)
    elseif not is_dict(value) and kept(below) and kept(value) and kept(below) ~= kept(value) then
      error({ error = shown .. ": expected ", why = "a field keeps its kind" }, 0)
    elseif is_dict(value) and below ~= nil and below ~= marker.none and not is_dict(below) then
      error({ error = shown .. ": expected ", why = "a field keeps its kind" }, 0)
    elseif is_dict(below) and not is_dict(value) then
      error({ error = shown .. ": expected a table of fields", why = "a record has its fields" }, 0)
    elseif is_dict(value) and is_dict(below) and value._delete_ ~= true then
      out[key] = merged(below, value, why, shown .. ".")
    else
      if is_dict(value) and below == marker.none then
        why.free = "a field whose default is none takes any data"
      end
      out[key] = without_marks(value, why)
    end
  end
  return out
end

-- fields of one file as a dictionary
local function own_fields(file, lookup)
  local out = setmetatable({}, Dict)
  for _, field in ipairs(file.fields) do
    local name, node = field[1], field[2]
    out[name] = value_of(node, function(path)
      if path[1] == "_base_" then
        return lookup(path)
      end
      return at_path(out, path)
    end, name)
  end
  return out
end

-- files of a case, bases first, each once
local function ancestors(case)
  local order, seen = {}, {}
  local function visit(name)
    local text = case.files[name]
    if seen[name] then
      return
    end
    seen[name] = true
    if not text then
      error({ error = "./' and '../' are relative to the recipe's own folder",
        why = "no such file" }, 0)
    end
    local file = read(case, name)
    file.name = name
    for _, base in ipairs(file.bases) do
      visit(resolve(base, name))
    end
    order[#order + 1] = file
  end
  visit(case.entry)
  return order
end

-- the fields of all files merged in order; names are looked up in `final`, or, where it is nil, in
-- the file that holds them, which is how the reference reads them
local function fold(order, final, why)
  local out, written = setmetatable({}, Dict), {}
  for _, file in ipairs(order) do
    local base = out
    local fields = own_fields(file, function(path) return at_path(base, path, 2) end)
    for _, field in ipairs(file.fields) do
      local name, node = field[1], field[2]
      if #file.bases == 0 and written[name] then
        why.twice = "a later parent goes over an earlier one"
      end
      written[name] = true
      if final then
        fields[name] = value_of(node, function(path, at)
          -- a value that builds on the one below it has that; any other name is the final value
          local own = path[1] == "_base_" and table.concat(path, ".", 2) == at
          return at_path(own and base or final, path, path[1] == "_base_" and 2 or 1)
        end, name)
      end
    end
    out = merged(out, fields, why, "")
  end
  return without_marks(out, why)
end

--- What our rules make of a case.
---@param case table  {files, entry}
---@return table|nil value  plain
---@return string|nil problem  part of the error's text, where the rules refuse the case
---@return table why     reasons, by name, that may make it another value than the reference's
function twins.expected(case)
  local why = {}
  local good, value = pcall(function()
    local order = ancestors(case)
    for _, file in ipairs(order) do
      for _, field in ipairs(file.fields) do
        if reserved[field[1]] then
          error({ error = field[1] .. " is not a field", why = "no such field" }, 0)
        end
        why.late = why.late or has_name(field[2]) and "derived values follow" or nil
      end
    end
    local final = fold(order, nil, why)
    return fold(order, final, why)
  end)
  if good then
    return value, nil, why
  end
  if type(value) ~= "table" then
    error(value, 0)
  end
  why.refused = value.why
  return nil, value.error, why
end

-- ---- rows of a registry ----

-- a dictionary that holds dictionaries by number is a map of buckets
local function is_map(value)
  local _, first = next(value)
  return is_dict(first) and math.type(next(first)) == "integer"
end

-- what a list holds: one kind, or any data
local function element_of(list)
  local kind
  for _, item in ipairs(list) do
    local one = math.type(item) or type(item)
    kind = (kind == nil or kind == one) and one or "mixed"
  end
  return ({ integer = "integer", float = "number", string = "text", boolean = "boolean" })[kind
    or "integer"] or "free"
end

local function kind_of(value)
  if value == marker.none then
    return "free"
  elseif type(value) == "table" then
    return { list = element_of(value) }
  elseif type(value) == "number" then
    return math.type(value) == "integer" and "integer" or "number"
  end
  return type(value) == "boolean" and "boolean" or "text"
end

--- One row for each field that the files of a case speak of; the weakest file decides its kind.
---@param case table
---@return table[] rows
function twins.rows(case)
  local rows, by_path = {}, {}
  local function add(path, kind)
    local old = by_path[path]
    if old then
      -- 3 in one file and 0.5 in another: a number
      if old[2] == "integer" and kind == "number" then
        old[2] = "number"
      end
      return
    end
    by_path[path] = { path, kind, none = true, help = "of the reference file", reader = "golden" }
    rows[#rows + 1] = by_path[path]
  end
  -- what a weaker file has made a record stays one, and a field stays a field
  local records = {}
  local function walk(dict, prefix)
    for _, key in ipairs(sorted_keys(dict)) do
      local value, path = dict[key], prefix .. tostring(key)
      if math.type(key) then
        error(prefix .. tostring(key) .. ": a record of ours has names", 0)
      end
      if key ~= "_delete_" and not (prefix == "" and reserved[key]) then
        if not is_dict(value) and not records[path] then
          add(path, kind_of(value))
        elseif is_dict(value) and next(value) == nil and not records[path] then
          add(path, "free")
        elseif is_dict(value) and is_map(value) then
          add(path, { map = { map = "bucket", key = "integer" } })
        elseif is_dict(value) and not by_path[path] then
          records[path] = true
          walk(value, path .. ".")
        end
      end
    end
  end
  local good, order = pcall(ancestors, case)
  local below = setmetatable({}, Dict)
  for _, file in ipairs(good and order or {}) do
    local fields = own_fields(file, function(path) return at_path(below, path, 2) end)
    walk(fields, "")
    local fine, all = pcall(merged, below, fields, {}, "")
    below = fine and all or below
  end
  return rows
end

-- ---- Lua text ----

local function lua_key(key)
  return type(key) == "string" and key or ("[%s]"):format(kinds.show(key))
end

local function lua_value(value)
  if value == marker.none then
    return "recipe.none"
  elseif is_dict(value) then
    local parts = {}
    for _, key in ipairs(sorted_keys(value)) do
      parts[#parts + 1] = ("[%s] = %s"):format(kinds.show(key), lua_value(value[key]))
    end
    return "{ " .. table.concat(parts, ", ") .. " }"
  elseif type(value) == "table" then
    local parts = {}
    for i, item in ipairs(value) do
      parts[i] = lua_value(item)
    end
    return "{ " .. table.concat(parts, ", ") .. " }"
  end
  return kinds.show(value)
end

-- an expression as Lua; `path` is the field that it stands in, `lookup` gives values of names
local function lua_expression(node, path, lookup)
  if node.op == "name" then
    local names = table.move(node.path, 1, #node.path, 1, {})
    local own = names[1] == "_base_"
    if own then
      table.remove(names, 1)
    end
    local shown = table.concat(names, ".")
    if own and shown == path then
      return "inherited"
    end
    local value = lookup(node.path)
    if not is_dict(value) then
      return "r." .. shown
    end
    -- a record of the final recipe, field by field
    local parts = {}
    for _, key in ipairs(sorted_keys(value)) do
      parts[#parts + 1] = ("%s = r.%s.%s"):format(key, shown, key)
    end
    return "{ " .. table.concat(parts, ", ") .. " }"
  elseif node.op == "binary" then
    local a, b = lua_expression(node[2], path, lookup), lua_expression(node[3], path, lookup)
    if node[1] == "*" and node[2].op == "list" then
      return ("times(%s, %s)"):format(a, b)
    end
    return ("(%s %s %s)"):format(a, node[1], b)
  elseif node.op == "negative" then
    return "-" .. lua_expression(node[1], path, lookup)
  elseif node.op == "list" then
    local parts = {}
    for i, item in ipairs(node.items) do
      parts[i] = lua_expression(item, path, lookup)
    end
    return "{ " .. table.concat(parts, ", ") .. " }"
  elseif node.op == "dict" then
    local parts = {}
    for i, pair in ipairs(node.pairs) do
      parts[i] = ("[%s] = %s"):format(kinds.show(pair[1]), lua_expression(pair[2], path, lookup))
    end
    return "{ " .. table.concat(parts, ", ") .. " }"
  end
  return lua_value(node.value)
end

local function lua_field(node, path, lookup)
  if node.op ~= "dict" then
    local text = lua_expression(node, path, lookup)
    return has_name(node) and ("function(r, inherited) return %s end"):format(text) or text
  end
  local parts, replaces = {}, false
  for _, pair in ipairs(node.pairs) do
    if pair[1] == "_delete_" then
      replaces = pair[2].value
    else
      local key = lua_key(pair[1])
      if type(pair[1]) == "string" and not pair[1]:match("^[%a_][%w_]*$") then
        key = ("[%q]"):format(pair[1])
      end
      parts[#parts + 1] = key .. " = "
        .. lua_field(pair[2], path .. "." .. tostring(pair[1]), lookup)
    end
  end
  return (replaces and "recipe.replace " or "") .. "{ " .. table.concat(parts, ", ") .. " }"
end

local TIMES = [[
local function times(list, n)
  local out = {}
  for _ = 1, n do
    table.move(list, 1, #list, #out + 1, out)
  end
  return out
end
]]

--- The files of a case as Lua recipes: name -> text.
---@param case table
---@return table
function twins.files(case)
  local out, below = {}, setmetatable({}, Dict)
  local good, order = pcall(ancestors, case)
  if not good and type(order) == "string" then
    error(order, 0)
  elseif not good then
    -- a base is missing: what names it is enough
    order = { read(case, case.entry) }
    order[1].name = case.entry
  end
  for _, file in ipairs(order) do
    local base = below
    local function in_base(path) return at_path(base, path, 2) end
    local fields = own_fields(file, in_base)
    local function lookup(path)
      if path[1] == "_base_" then
        return in_base(path)
      end
      return at_path(fields, path)
    end
    local parts = {}
    for _, field in ipairs(file.fields) do
      parts[#parts + 1] = ("  %s = %s,\n"):format(field[1], lua_field(field[2], field[1], lookup))
    end
    local head = "recipe "
    if #file.bases > 0 then
      local names = {}
      for i, name in ipairs(file.bases) do
        local path = name:gsub("%.%w+$", "")
        names[i] = ("%q"):format(path:match("^%.%.?/") and path or "./" .. path)
      end
      head = ("recipe.extend(%s) "):format(table.concat(names, ", "))
    end
    out[file.name:gsub("%.%w+$", ".lua")] = TIMES .. "return " .. head .. "{\n"
      .. table.concat(parts) .. "}\n"
    local fine, all = pcall(merged, below, fields, {}, "")
    below = fine and all or below
  end
  return out
end

return twins
