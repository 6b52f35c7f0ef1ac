--- The cost of renderings during a run: predicted before the first step, compared with
-- measurements, and limited to sampling.most_share of the time. On the run's device the unit is
-- seconds. In parallel with the run it is seconds of a processor, because the wall time depends on
-- the load.
-- @module moonreel.trainer.rendering_cost
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local pipeline = require "moonreel.models.pipeline"
local process = require "moonreel.core.process"
local processors = require "moonreel.trainer.processors"
local sample_cost = require "moonreel.sample.cost"

local rendering_cost = {}

local TOLERANCE <const> = 0.1 -- share of the prediction: a larger difference is logged
local ASK_S <const> = 60      -- limit for computing a prediction
local SHORT_S <const> = 5     -- if all programs of a rendering take less, one is made as a test

--- Seconds as text for people.
---@param seconds number
---@return string
function rendering_cost.text(seconds)
  return (seconds < 10 and "%.2f s" or "%.1f s"):format(seconds)
end

---@class mr.RenderingCost
---@field most_share number      largest share of the time; 0: no limit
---@field predicted_s number|nil of one rendering
---@field times number[]         seconds that renderings took
---@field spent_s number         their sum
---@field parallel boolean        renderings run in parallel with the run; seconds are those of a
---   processor
---@field began number           when the run began to train
local Cost = {}
Cost.__index = Cost

--- Starts without prediction and renderings.
---@param sampling table  field of the settings
---@return mr.RenderingCost
function rendering_cost.new(sampling)
  return setmetatable({ most_share = sampling.most_share, parallel = sampling.on == "host",
    times = {}, spent_s = 0, began = base.now_s() }, Cost)
end

--- Predicts the cost of a rendering on a device. If the prediction for processors is short, a
-- rendering is made. Otherwise the time comes from the programs and the device's rates.
---@param s table  settings
---@param device mr.Device
---@param here table  saved_bytes; fresh: a separate process renders
---@return number seconds  of a processor, if fresh
---@return integer clips
---@return integer bytes of the process that renders
function rendering_cost.on(s, device, here)
  here.clock = here.fresh and os.clock or base.now_s
  local dtype = pipeline.dtype(s, device)
  local pipe = pipeline.of(s, dtype)
  local planned = { facts = device:facts(), rates = device }
  local exec <close> = E.plan(pipe.params, planned)
  local bytes, threads = 0, here.fresh and planned.facts.threads or 1
  local seconds, clips = sample_cost.programs(s, pipe, exec, { planned = planned,
    seconds = function(prog)
      local plan = prog:plan()
      bytes = math.max(bytes, plan.total)
      return plan.seconds * threads
    end })
  if planned.facts.device == "cpu" and seconds < SHORT_S and sample_cost.is_whole(pipe) then
    seconds = sample_cost.whole(s, pipe, device, here)
  else
    seconds = seconds + sample_cost.around(s, pipe, exec, here)
  end
  -- a file whose hashes are compared is in memory as a whole
  return seconds, clips, bytes + here.saved_bytes
end

local ASK <const> = [[
local s = require("moonreel.settings").from_json(io.read "a", "the run's settings")
local device <close> = require("moonreel.core.exec").device("cpu", %d)
print(require("moonreel.trainer.rendering_cost").on(s, device,
  { saved_bytes = %d, fresh = %s }))]]

--- The same in a separate process on processors, so that its memory does not count as the run's.
---@param s table  settings
---@param threads integer
---@param here table
---@return number seconds
---@return integer clips
---@return integer bytes
function rendering_cost.ask(s, threads, here)
  local code = ASK:format(threads, here.saved_bytes, here.fresh)
  local done = process.run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh", process.program(), "-e",
    code }, s:to_json(), { deadline_s = ASK_S })
  local seconds, clips, bytes = done.output:match "^([%d.e+-]+)\t(%d+)\t(%d+)\n$"
  if done.exit ~= 0 or not seconds then
    base.raise("MR_E_FAIL", done.output)
  end
  return tonumber(seconds), math.tointeger(clips), math.tointeger(bytes)
end

-- processors that a run's threads use
local function used_by(r)
  return r.facts.device == "cpu" and r.facts.threads * r.team.size or r.team.size
end

--- Threads of the process that renders in parallel with a run.
---@param r mr.Run
---@return integer
function rendering_cost.threads(r) return processors.spare(r.settings, used_by(r)) end

--- Predicts the cost of a rendering, and prints it.
---@param r mr.Run
function Cost:predict(r)
  local s = r.settings
  local threads, here = rendering_cost.threads(r), s.sampling.on == "device"
  local good, seconds, clips, bytes = pcall(function()
    local known = { saved_bytes = r.saved_bytes, fresh = not here }
    if here and r.facts.device ~= "cpu" then
      return rendering_cost.on(s, r.device, known)
    end
    return rendering_cost.ask(s, here and r.facts.threads or threads, known)
  end)
  if not good then
    r.progress:say(("the cost of a rendering is not known: %s"):format(tostring(
      type(seconds) == "table" and seconds.message or seconds)))
    return
  end
  if here and r.facts.device == "cpu" then
    r.measured:add_rendering(bytes)
  end
  self.predicted_s = seconds
  r.progress:say(("renderings: every %d steps (sampling.every) %d clips, about %s each%s, %s")
    :format(s.sampling.every, clips, rendering_cost.text(seconds), self:of(),
    here and "between two steps"
    or ("in parallel with the run, by %d thread%s"):format(threads, threads == 1 and "" or "s")))
end

-- the unit of the seconds, as text
function Cost:of() return self.parallel and " of a processor" or "" end

--- Adds a rendering that was made.
---@param event table  from moonreel.watch
function Cost:took(event)
  local seconds = self.parallel and event.cpu_s or event.seconds
  self.times[#self.times + 1], self.spent_s = seconds, self.spent_s + seconds
end

-- the median time
local function median(times)
  local sorted = table.move(times, 1, #times, 1, {})
  table.sort(sorted)
  return sorted[(#sorted + 1) // 2]
end

--- The share of the time that renderings would have after one more, if it exceeds the limit.
---@return number|nil share
function Cost:excess()
  local seconds = median(self.times) or self.predicted_s or 0
  local share = (self.spent_s + seconds) / (base.now_s() - self.began + seconds)
  return self.most_share > 0 and share > self.most_share and share or nil
end

--- For the journal: number, median and sum of their times, and the prediction.
---@return table|nil
function Cost:facts()
  return #self.times > 0 and { n = #self.times, measured_s = median(self.times),
    predicted_s = self.predicted_s, spent_s = self.spent_s,
    share = self.spent_s / (base.now_s() - self.began) } or nil
end

--- A line for the log: times of renderings, compared with the prediction if they differ.
---@param busy string|nil  the reason why times cannot be compared
---@return string|nil
function Cost:line(busy)
  local facts = self:facts()
  if not facts then
    return nil
  end
  local off = facts.predicted_s and facts.measured_s / facts.predicted_s - 1 or 0
  return ("renderings: %d, %s each%s, %.1f %% of the time%s"):format(facts.n,
    rendering_cost.text(facts.measured_s), self:of(), facts.share * 100,
    math.abs(off) <= TOLERANCE and "" or busy
    and ("; not compared with the prediction: " .. busy)
    or ("; %s were predicted: %+.0f %%"):format(rendering_cost.text(facts.predicted_s), off * 100))
end

return rendering_cost
