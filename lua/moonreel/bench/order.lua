--- The cost of planning an epoch on synthetic rows, and of reading an index. Seconds are processor
-- seconds, so that other load of the machine does not count. Ref: dataplane.md, section 8.
-- @module moonreel.bench.order
local bench = require "moonreel.core.bench"
local buckets = require "moonreel.data.buckets"
local core_index = require "moonreel.core.index"
local temporary = require "moonreel.data.temporary"

local order = {}

-- the recipe whose buckets are planned: several hundred, most with probabilities
local RECIPE = "recipes/opensora-1.2/stage2.lua"
local LOOKUPS, OPENS, PLANNED = 20000, 50, 100

-- the processor seconds of a call
local function cpu_of(call)
  local from = bench.cpu_s()
  call()
  return bench.cpu_s() - from
end

-- a line whose aim is an upper bound
local function at_most(what, value, unit, aim, note)
  return { what = what, value = value, unit = unit, aim = aim, most = true, note = note or "" }
end

local function plan(rows)
  local settings = require("moonreel.settings").bake(RECIPE, { "order=own" })
  local t = buckets.rule(buckets.of(settings)):measure(rows)
  return {
    at_most("plan", t.plan_s / rows * 1e9, "ns/row", 50, ("%g M rows, %d buckets, %.3g s"):format(
      rows / 1e6, t.buckets, t.plan_s)),
    at_most("plan", t.bytes / 1e6, "MB", 16, "private memory"),
    at_most("select", t.select_s * 1e6, "us/sample", 75),
    at_most("state", t.state_bytes / 1e3, "kB", 4),
  }
end

local function look_up(rows, dir)
  local path = dir .. "/rows.mrx"
  core_index.synthetic(path, rows, 1)
  local index <close> = core_index.open(path)
  index:visit(LOOKUPS)
  local looked = cpu_of(function() index:visit(LOOKUPS) end)
  local opened = cpu_of(function()
    for _ = 1, OPENS do
      core_index.open(path):close()
    end
  end)
  return {
    at_most("look up", looked / LOOKUPS * 1e6, "us/row", 4, ("%d rows, warm"):format(rows)),
    at_most("open", opened / OPENS * 1e3, "ms", 1),
  }
end

--- Measures.
---@param o table  rows (1000000): of the index that is read; a hundred times this number is planned
---@return table[] lines  {what, value, unit, aim, most, note}
function order.measure(o)
  local rows, dir <close> = o.rows or 1000000, temporary.folder()
  local lines, more = plan(PLANNED * rows), look_up(rows, dir.path)
  return table.move(more, 1, #more, #lines + 1, lines)
end

return order
