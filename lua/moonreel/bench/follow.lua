--- The cost of following a run: steps of the demo with both trackers, weights.every and
-- hosts.every, alternating with the same steps without them, or with steps of a resumed run with a
-- long journal.
-- @module moonreel.bench.follow
local base = require "moonreel.core.base"
local loop = require "moonreel.trainer.loop"
local paired = require "moonreel.bench.paired"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local tail = require "moonreel.runs.tail"
local temporary = require "moonreel.data.temporary"
local trainer = require "moonreel.trainer"

local follow = {}

follow.aim = 1.02 -- largest allowed ratio to a step without them

local WARM <const> = 8 -- warm-up steps, in which each bucket is compiled

local NONE <const> = { "name=none", "weights.every=0", "hosts.every=0" }
local ALL <const> = { "name=all", "tensorboard=true", "wandb=true" }
local LONG <const> = { "name=long", "tensorboard=true", "wandb=true", "load=latest" }

local function made(...)
  local done = process.run({ process.program(), ... }, "", { deadline_s = 600 })
  if done.exit ~= 0 then
    base.raise("MR_E_INTERNAL", ("bench: moonreel %s ended with %s: %s"):format(
      table.concat({ ... }, " "), done.exit or done.signal, done.output))
  end
end

-- Opens a run of the demo that pauses before each of its steps.
local function open(dir, options, words)
  local list = { "data_path=" .. dir .. "/demo.mrx", "outputs=" .. dir, "steps=1000000",
    "threads=" .. (options.threads or 0), options.dtype and "dtype=" .. options.dtype or nil }
  local s = settings.bake("recipes/tiny/demo.lua", table.move(words, 1, #words, #list + 1, list))
  return coroutine.create(function() trainer.run(s, { write = function() end }) end)
end

-- seconds of a step and of the work after it; spent.s: processor seconds in all
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

-- Makes a run with `steps` lines in its journal, few of them of real steps, saved after the last
-- one.
local function write_long(dir, options, steps, real)
  local line
  function loop.step(r)
    if r.step < WARM then
      return real(r)
    elseif not line then
      tail.newest(r.dir .. "/journal.jsonl", function(entry)
        line = entry.kind == "step" and entry or nil
        return line ~= nil
      end)
    end
    r.step = r.step + 1
    line.step, line.wall = r.step, base.wall_s()
    r.journal:append(line)
    return r.step < steps
  end
  local run = open(dir, options, { LONG[1], LONG[2], LONG[3] })
  local good, problem = coroutine.resume(run)
  if not good then
    error(problem, 0)
  end
end

-- measures two runs alternately
local function measure(dir, options, first, second)
  local runs = { open(dir, options, first), open(dir, options, second) }
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
  -- each run is first in every second pair
  local rounds = paired.rounds({ all, none, none, all }, options.seconds)
  local function both(a, b)
    local list = {}
    for i, seconds in ipairs(rounds[a]) do
      list[i] = (seconds + rounds[b][i]) / 2
    end
    return list
  end
  local with, without = both(1, 4), both(2, 3)
  return { first_s = paired.median(with), second_s = paired.median(without), rounds = 2 * #with,
    ratio = paired.ratio(with, without), cpu_ratio = spent[1].s / spent[2].s,
    journal = options.journal, aim = follow.aim }
end

--- Measures.
---@param options table  threads, dtype, seconds; journal: number of steps that a resumed run
---   continues after, compared with a new run; absent: compare a run with all trackers with one
---   without
---@return table  first_s, second_s: seconds of a step of both runs; ratio: their ratio, as median
---   of rounds; cpu_ratio: ratio of processor seconds, which other load on the machine hardly
---   affects; rounds; journal; aim: largest allowed ratio
function follow.measure(options)
  local folder <close>, real = temporary.folder(), loop.step
  local dir = folder.path
  local _ <close> = setmetatable({}, { __close = function() loop.step = real end })
  made("datasets/demo/build.lua", dir .. "/clips", "1", "6")
  made("data", "ingest", dir .. "/clips/demo.csv", "-o", dir .. "/demo.mrx")
  if options.journal then
    write_long(dir, options, options.journal, real)
  end
  function loop.step(r)
    coroutine.yield()
    return real(r)
  end
  return measure(dir, options, options.journal and LONG or ALL, options.journal and ALL or NONE)
end

return follow
