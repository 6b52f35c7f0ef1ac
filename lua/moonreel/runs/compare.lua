--- Compares runs: the settings in which they differ, and their losses in one chart.
-- @module moonreel.runs.compare
local base = require "moonreel.core.base"
local chart = require "moonreel.look.chart"
local find = require "moonreel.runs.find"
local kinds = require "moonreel.recipe.kinds"
local settings = require "moonreel.settings"
local events = require "moonreel.runs.events"

local compare = {}

-- fields about the run itself
local OWN <const> = { outputs = true, name = true }

--- The fields in which the recipes of runs differ.
---@param dirs string[]
---@return table[] rows  {field, ["1"] = value of the first run as text, ["2"] = ...}, by field; a
---   value is nil if the run lacks the field; raises MR_E_RECIPE if a run has no settings
function compare.settings(dirs)
  local values, fields, list = {}, {}, {}
  for i, dir in ipairs(dirs) do
    values[i] = {}
    for _, leaf in ipairs(settings.load(dir .. "/settings.json"):leaves()) do
      values[i][leaf.path] = kinds.show(leaf.raw)
      if not fields[leaf.path] and not OWN[leaf.path] then
        fields[leaf.path], list[#list + 1] = true, leaf.path
      end
    end
  end
  table.sort(list)
  local rows = {}
  for _, field in ipairs(list) do
    local row, differ = { field = field }, false
    for i = 1, #dirs do
      row[tostring(i)] = values[i][field]
      differ = differ or values[i][field] ~= values[1][field]
    end
    rows[#rows + 1] = differ and row or nil
  end
  return rows
end

--- The losses of the steps that count, of all stages one after another.
---@param dir string
---@return number[][] points  {step, loss}
function compare.curve(dir)
  local points = {}
  for _, line in ipairs(events.steps(find.parts(dir))) do
    if type(line.loss) == "number" then
      points[#points + 1] = { line.step, line.loss }
    end
  end
  return points
end

--- Draws the curves in one chart of letters.
---@param curves table[]  {name, points = {step, loss} list}
---@return string         lines; raises MR_E_USAGE for more curves than there are marks
function compare.chart(curves)
  if #curves > #chart.MARKS then
    base.raise("MR_E_USAGE", ("runs: --compare: got %d runs; expected at most %d, because a "
      .. "chart has no more different marks"):format(#curves, #chart.MARKS))
  end
  return chart.several(curves, { title = "loss by step" })
end

return compare
