--- What trackers show of a run in addition to its steps: the values of its recipe, and texts for
-- events.
-- @module moonreel.trackers.facts
local base = require "moonreel.core.base"
local glance = require "moonreel.runs.glance"
local json = require "moonreel.core.json"
local words = require "moonreel.runs.words"

local facts = {}

--- The text of the flattened recipe; nil: it does not exist.
---@param dir string
---@return string|nil
function facts.recipe(dir)
  local path = dir .. "/recipe.lua"
  return base.exists(path) and base.read_file(path) or nil
end

-- path -> chain of {at, set, value}; empty if settings.json is missing or of another version
local function origin_of(dir)
  local path = dir .. "/settings.json"
  local good, found = pcall(function() return json.decode(base.read_file(path), path) end)
  return good and type(found) == "table" and type(found.origin) == "table" and found.origin or {}
end

local function value_at(settings, path)
  local value = settings
  for key in path:gmatch "[^.]+" do
    value = type(value) == "table" and value[key] or nil
  end
  return value
end

--- The fields that a recipe or command line has set: {{path, value}, ...} by path. Lists are JSON
-- text.
---@param dir string
---@return table[]
function facts.chosen(dir)
  local settings, origin = glance.settings(dir) or {}, origin_of(dir)
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

-- kinds of lines that are shown as text
local SHOWN <const> = { spike = true, rollback = true, nonfinite = true, replicas = true,
  alarm = true, error = true, ["end"] = true, stop = true }

--- The text of a line for the user; nil: the line is not shown.
---@param line table  line of the journal
---@return string|nil
function facts.words(line)
  if line.kind == "note" then
    return type(line.text) == "string" and line.text or nil
  end
  return SHOWN[line.kind] and words.of(line) or nil
end

return facts
