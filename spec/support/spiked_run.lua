-- A run in which batches of some draws of epoch 0 are spoiled whenever they are drawn: moonreel [-n
-- N] spec/support/spiked_run.lua JSON WORDS OF TRAIN. JSON: {draws = {["54"] = factor of loss and
-- gradient, or "nan"}, known = {n, mean, variance} of losses with which each group begins, stop =
-- the step after which the process is killed once the run has rolled back}
local json = require "moonreel.core.json"
local loop = require "moonreel.trainer.loop"
local anomalies = require "moonreel.trainer.anomalies"

local plan, words = json.decode(arg[1]), table.move(arg, 2, #arg, 1, {})

-- the weights that the device gets, although the loop has counted others
local function spoiled(input, factor)
  local list = {}
  for b, weight in ipairs(input.weight) do
    list[b] = factor == "nan" and 0 / 0 or weight * factor
  end
  return list
end

local function spoil(r)
  local prepare, get, factors = r.feed.prepare, r.programs.get, {}
  function r.feed.prepare(self, batch, shape)
    local input = prepare(self, batch, shape)
    factors[input] = batch.epoch == 0 and plan.draws[tostring(batch.draw)] or nil
    return input
  end
  function r.programs.get(...)
    local micro = get(...)
    return setmetatable({ stage = function(_, input)
      local before, factor = input.weight, factors[input]
      input.weight = factor and spoiled(input, factor) or before
      micro:stage(input)
      input.weight = before
    end }, { __index = micro })
  end
  if plan.known and r.step == 0 then
    setmetatable(r.spikes.groups, { __index = function(groups, name)
      groups[name] = { n = plan.known[1], mean = plan.known[2], variance = plan.known[3] }
      return rawget(groups, name)
    end })
  end
end

local step, check, gone_back, begun = loop.step, anomalies.check, false, false
function loop.step(r)
  if not begun then
    begun = true
    spoil(r)
  end
  pcall(r.saver.wait, r.saver) -- a slow disk would skip saves that a rollback needs
  return step(r)
end
function anomalies.check(r)
  local before = r.step
  check(r)
  gone_back = gone_back or r.step < before
  if plan.stop and gone_back and r.step == plan.stop then
    pcall(r.saver.wait, r.saver)
    os.exit(9, false)
  end
end

local good, problem = pcall(require("moonreel.cli.train").run, words)
if not good and not (type(problem) == "table" and problem.reported) then
  io.stderr:write(type(problem) == "table" and problem.message or problem, "\n")
end
os.exit(good and 0 or type(problem) == "table" and problem.exit or 1)
