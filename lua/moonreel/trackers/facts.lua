--- What trackers say of a run beside its steps: settings, recipe, words for events.
-- @module moonreel.trackers.facts
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

local facts = {}

--- The settings of a run or stage, as values that JSON knows; empty where the file is missing or is
-- none of this version.
---@param dir string
---@return table settings
---@return table origin  path -> chain of {at, set, value}
function facts.settings(dir)
  local path = dir .. "/settings.json"
  if not base.exists(path) then
    return {}, {}
  end
  local good, found = pcall(function() return json.decode(base.read_file(path), path) end)
  if not good or type(found) ~= "table" or type(found.settings) ~= "table" then
    return {}, {}
  end
  return found.settings, type(found.origin) == "table" and found.origin or {}
end

--- The text of the flattened recipe; nil where there is none.
---@param dir string
---@return string|nil
function facts.recipe(dir)
  local path = dir .. "/recipe.lua"
  return base.exists(path) and base.read_file(path) or nil
end

local function value_at(settings, path)
  local value = settings
  for key in path:gmatch "[^.]+" do
    value = type(value) == "table" and value[key] or nil
  end
  return value
end

--- What a recipe or command line has set: {{path, value}, ...} by path. Lists are JSON text.
---@param dir string
---@return table[]
function facts.chosen(dir)
  local settings, origin = facts.settings(dir)
  local list = {}
  for path, chain in pairs(origin) do
    local last = type(chain) == "table" and chain[#chain]
    local value = last and last.set and not path:find "^resolutions%." and value_at(settings, path)
    if type(value) == "table" then
      value = json.encode(value)
    end
    if value ~= nil and (type(value) == "number" or type(value) == "boolean" and last.set
        or type(value) == "string") then
      list[#list + 1] = { path, value }
    end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end

-- kind of line -> what a person reads
local words = {
  spike = function(line)
    return ("spike: %s %s, limit %s; %s"):format(line.cause, line.value, line.limit, line.action)
  end,
  rollback = function(line)
    return ("back from step %s to step %s: %s"):format(line.from, line.step, line.why)
  end,
  alarm = function(line) return "alarm: " .. tostring(line.text) end,
  note = function(line) return line.text end,
  ["end"] = function() return "the run has reached its end" end,
  stop = function(line) return ("stopped by signal %s"):format(line.signal) end,
}

--- What a line says to people; nil: nothing.
---@param line table  of the journal
---@return string|nil
function facts.words(line)
  local f = words[line.kind]
  local text = f and f(line)
  return type(text) == "string" and text or nil
end

return facts
