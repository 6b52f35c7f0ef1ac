--- Names of tensors: natural order, patterns, kinds and layers; the norm of a list of values.
-- @module moonreel.ckpt.names
local regions = require "moonreel.optim.regions"

local names = {}

local saved = regions.saved
local of_codes = {}
for _, of in pairs(regions.coded) do
  of_codes[of.codes.name], of_codes[of.scale.name] = true, true
end

--- Kinds of tensors, in the order of lists: weights, then other state of optimizers.
names.kinds = { "weights" }
local places = { weights = "0" }
for i, row in ipairs(saved) do
  names.kinds[i + 1], places[row.name] = row.name, tostring(i)
end

--- A key that sorts by the numbers in a name: blocks.2 before blocks.10.
function names.key(name)
  return (name:gsub("%d+", function(digits) return ("0"):rep(12 - #digits) .. digits end))
end

--- Sorts a list of names in place: weights first, then masters, averages and moments, each in
-- natural order.
---@param list string[]
---@return string[] list
function names.sort(list)
  local keys = {}
  for _, name in ipairs(list) do
    local kind, parameter = names.kind(name)
    keys[name] = places[kind] .. names.key(parameter)
  end
  table.sort(list, function(a, b) return keys[a] < keys[b] end)
  return list
end

--- The names that match a pattern as a whole; `*` matches any text, including dots.
---@param list string[]
---@param pattern string|nil
---@return string[]
function names.matching(list, pattern)
  if not pattern then
    return list
  end
  local lua_pattern = "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", ".*")
    .. "$"
  local out = {}
  for _, name in ipairs(list) do
    if name:match(lua_pattern) then
      out[#out + 1] = name
    end
  end
  return out
end

--- The kind of a tensor: "weights" or the region it comes from; and the parameter's own name.
---@return string kind, string parameter
function names.kind(name)
  for _, row in ipairs(saved) do
    if name:sub(1, #row.prefix) == row.prefix then
      return row.name, name:sub(#row.prefix + 1)
    end
  end
  return "weights", name
end

--- Are tensors of a kind codes or their scales, whose norms have no meaning?
---@param kind string  from names.kind
---@return boolean
function names.is_coded(kind) return of_codes[kind] or false end

--- The norm of a tensor's finite values, from its statistics.
---@param s table  {n, nonfinite, rms}
---@return number
function names.norm(s) return s.rms * math.sqrt(s.n - s.nonfinite) end

--- The layer of a parameter: its name up to and including the first number, else up to the first
-- dot.
function names.layer(name)
  return name:match("^.-%f[%w]%d+%f[%W]") or name:match("^[^.]+")
end

return names
