--- Names of tensors: natural order, patterns, kinds and layers.
-- @module moonreel.ckpt.names
local names = {}

--- A key that sorts by the numbers inside: blocks.2 before blocks.10.
function names.key(name)
  return (name:gsub("%d+", function(digits) return ("0"):rep(12 - #digits) .. digits end))
end

--- Sort a list of names in natural order, in place.
---@param list string[]
---@return string[] list
function names.sort(list)
  local keys = {}
  for _, name in ipairs(list) do
    keys[name] = names.key(name)
  end
  table.sort(list, function(a, b) return keys[a] < keys[b] end)
  return list
end

--- Those that a pattern matches whole; `*` stands for anything, dots too.
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

local prefixes = { "master.", "ema.", "adam_m.", "adam_v." }

--- What a tensor is: "weights", "master", "ema", "adam_m", "adam_v"; and the parameter's own name.
---@return string kind, string parameter
function names.kind(name)
  for _, prefix in ipairs(prefixes) do
    if name:sub(1, #prefix) == prefix then
      return prefix:sub(1, -2), name:sub(#prefix + 1)
    end
  end
  return "weights", name
end

--- The layer of a parameter: its name up to and with the first number, else up to the first dot.
function names.layer(name)
  return name:match("^.-%f[%w]%d+%f[%W]") or name:match("^[^.]+")
end

return names
