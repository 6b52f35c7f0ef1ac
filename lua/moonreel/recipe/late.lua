--- Late-bound values: f(r, inherited) is called once, when its value is first needed, and reads
-- other final values. `fold` is the fold (moonreel.recipe.fold) that needs the value. A function
-- that needs its own value gets an error that shows the cycle.
-- @module moonreel.recipe.late
local environment = require "moonreel.recipe.environment"
local fault = require "moonreel.recipe.fault"
local layer = require "moonreel.recipe.layer"
local place = require "moonreel.recipe.place"
local registry = require "moonreel.recipe.registry"
local view = require "moonreel.recipe.view"

local plain = view.plain
local late = {}

--- Calls `f` for the value at keys[1..count] and records on `write` what the function reads.
---@param write table  {place}; busy, reads
---@param inherited any  plain data
---@return any value
function late.call(fold, write, keys, count, f, inherited)
  if write.busy then
    local chain, from = {}, 1
    for i, call in ipairs(fold.calls) do
      if call.write == write then
        from = i
      end
    end
    for i = from, #fold.calls do
      chain[#chain + 1] = ("%s (%s)"):format(fold.calls[i].path,
        place.text(fold.calls[i].write.place))
    end
    chain[#chain + 1] = registry.path(keys, count)
    fault.at(write.place, "%s needs its own value: %s", registry.path(keys, count),
      table.concat(chain, " -> "))
  end
  write.busy = true
  write.reads = write.reads or {}
  local call = { write = write, path = registry.path(keys, count), reads = write.reads }
  fold.calls[#fold.calls + 1] = call
  fold.reader = fold.reader or view.of(fold, {}, fold.root)
  local ok, result = environment.guarded(nil, f, fold.reader, inherited)
  fold.calls[#fold.calls] = nil
  write.busy = false
  if not ok then
    local text = fault.raised(result)
    if not text then
      error(result, 0)
    end
    fault.at(write.place, "%s: %s", call.path, text)
  end
  if result == nil then
    fault.at(write.place, "%s: the function returned nil; try: recipe.none for no value, "
      .. "recipe.remove for the default", call.path)
  end
  if type(result) == "function" then
    fault.at(write.place, "%s: the function returned a function; no setting has a function as its "
      .. "value", call.path)
  end
  return result
end

--- Replaces a late write by the write that its result stands for; the function is called once.
---@return table|nil write
function late.resolve(fold, write, keys, count, index)
  if not write or write.tag ~= "late" then
    return write
  end
  if write.result then
    return write.result
  end
  local schema = fold:schema(keys, count)
  local inherited
  if not write.busy then
    inherited = plain(fold:value(keys, count, index - 1))
  end
  local value = late.call(fold, write, keys, count, write.f, inherited)
  write.result = layer.of_result(schema, value, write.place, registry.path(keys, count))
  write.result.late = write
  return write.result
end

--- A list value with the functions inside it called, because they are late-bound as well.
---@param old any  the value that the list replaces
function late.list_items(fold, write, value, old, keys)
  if type(value) == "function" then
    local inner = write.items and write.items[value]
    if not inner then
      -- `why` shows, for the list as a whole, what its items were computed from
      write.reads, write.items = write.reads or {}, write.items or {}
      inner = { place = write.place, f = value, reads = write.reads }
      write.items[value] = inner
    end
    if inner.value == nil then
      inner.value = late.call(fold, inner, keys, #keys, value, plain(old))
    end
    return inner.value
  end
  if type(value) ~= "table" or getmetatable(value) ~= nil then
    return value
  end
  local out = {}
  for key, item in next, value do
    out[key] = late.list_items(fold, write, item, type(old) == "table" and old[key] or nil, keys)
  end
  return out
end

return late
