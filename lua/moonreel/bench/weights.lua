--- The cost of weights.every: measuring the weights of the demo, alternating with its step.
-- @module moonreel.bench.weights
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local demo = require "moonreel.bench.demo"
local optim_weights = require "moonreel.optim.weights"
local paired = require "moonreel.bench.paired"
local pipeline = require "moonreel.models.pipeline"

local weights = {}

weights.aim = 0.005 -- largest share of the time, at the usual interval

local H <const> = { lr = 1e-4, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.01,
  step = 1 }

local function timed(f)
  return function()
    local began = base.now_s()
    f()
    return base.now_s() - began
  end
end

--- Measures.
---@param options table  threads, dtype, seconds
---@return table  seconds of a measurement, rate: its bytes per second; step_s; every: the usual
---   interval; share of the time; aim: largest allowed share
function weights.measure(options)
  local s = require("moonreel.settings").bake "recipes/tiny/demo.lua"
  local device <close> = E.device("cpu", options.threads or 0)
  local opened = demo.open(device, s, demo.bucket(s), options.dtype or pipeline.dtype(s, device))
  local _ <close> = opened.exec
  local watch = optim_weights.new(opened.exec, opened.pipe.params)
  local rounds = paired.rounds({ timed(function() watch:facts(watch:sums(H), true) end),
    timed(opened.run) }, options.seconds)
  local seconds = paired.median(rounds[1])
  -- masters, averages and both moments
  local bytes = 16 * opened.pipe.params:elements()
  return { seconds = seconds, rate = bytes / seconds, step_s = paired.median(rounds[2]),
    every = s.weights.every, aim = weights.aim,
    share = paired.ratio(rounds[1], rounds[2]) / s.weights.every }
end

return weights
