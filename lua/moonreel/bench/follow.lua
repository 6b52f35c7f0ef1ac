--- What following a run takes of its time: steps of the demo with all that people look at - both
-- trackers, weights and hosts under watch - in turn with the same steps without any of it.
-- @module moonreel.bench.follow
local base = require "moonreel.core.base"
local loop = require "moonreel.trainer.loop"
local paired = require "moonreel.bench.paired"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

local follow = {}

follow.aim = 1.02 -- times a step without

local WARM <const> = 8 -- steps before the first that counts: each bucket is compiled then

local NONE <const> = { "name=none", "weights.every=0", "hosts.every=0" }
local ALL <const> = { "name=all", "tensorboard=true", "wandb=true" }

local function made(...)
  local done = process.run({ process.program(), ... }, "", { deadline_s = 600 })
  if done.exit ~= 0 then
    base.raise("MR_E_INTERNAL", ("bench: moonreel %s ended with %s: %s"):format(
      table.concat({ ... }, " "), done.exit or done.signal, done.output))
  end
end

-- A run of the demo that stands still before each of its steps.
local function open(dir, options, words)
  local list = { "data_path=" .. dir .. "/demo.mrx", "outputs=" .. dir, "steps=1000000",
    "threads=" .. (options.threads or 0), options.dtype and "dtype=" .. options.dtype or nil }
  local s = settings.bake("recipes/tiny/demo.lua", table.move(words, 1, #words, #list + 1, list))
  return coroutine.create(function() trainer.run(s, { write = function() end }) end)
end

-- seconds of a step and of what is done behind it; spent.s: those of processors, in all
local function step(run, spent)
  return function()
    local began, cpu_s = base.now_s(), os.clock()
    local good, problem = coroutine.resume(run)
    if not good then
      error(problem, 0)
    end
    spent.s = spent.s + os.clock() - cpu_s
    return base.now_s() - began
  end
end

local function measure(dir, options)
  local runs = { open(dir, options, ALL), open(dir, options, NONE) }
  local closing <close> = setmetatable({}, { __close = function() -- luacheck: ignore 211
    for _, run in ipairs(runs) do
      coroutine.close(run)
    end
  end })
  local spent = { { s = 0 }, { s = 0 } }
  local all, none = step(runs[1], spent[1]), step(runs[2], spent[2])
  for _ = 1, WARM do
    all()
    none()
  end
  spent[1].s, spent[2].s = 0, 0
  -- each is the first one of every second pair
  local rounds = paired.rounds({ all, none, none, all }, options.seconds)
  local function both(a, b)
    local list = {}
    for i, seconds in ipairs(rounds[a]) do
      list[i] = (seconds + rounds[b][i]) / 2
    end
    return list
  end
  local with, without = both(1, 4), both(2, 3)
  return { all_s = paired.median(with), none_s = paired.median(without), rounds = 2 * #with,
    ratio = paired.ratio(with, without), cpu_ratio = spent[1].s / spent[2].s,
    aim = follow.aim }
end

--- Measure.
---@param options table  threads, dtype, seconds
---@return table  all_s, none_s: of a step; ratio: of both, the median over rounds; cpu_ratio: of
---   the seconds of processors, which others on the machine hardly change; rounds; aim: the most
---   of it
function follow.measure(options)
  local dir, real = os.tmpname(), loop.step
  os.remove(dir)
  base.make_dir(dir)
  function loop.step(r)
    coroutine.yield()
    return real(r)
  end
  local good, result = pcall(function()
    made("datasets/demo/build.lua", dir .. "/clips", "1", "6")
    made("data", "ingest", dir .. "/clips/demo.csv", "-o", dir .. "/demo.mrx")
    return measure(dir, options)
  end)
  loop.step = real
  base.remove_dir(dir)
  if not good then
    error(result, 0)
  end
  return result
end

return follow
