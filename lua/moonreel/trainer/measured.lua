--- Measured steps of each bucket, compared with the prediction before the first one: seconds, and
-- bytes of the process.
-- @module moonreel.trainer.measured
local run = require "moonreel.run"

local measured = {}

local LEAST, MOST = 5, 101  -- least and largest number of steps for a median; the newest are used
local TOLERANCE = 0.1       -- share of the prediction: a larger difference is logged
local LITTLE = 32 << 20     -- a smaller difference in bytes is not logged

local Measured = {}
Measured.__index = Measured

--- Starts without predictions and measurements.
---@return mr.Measured
function measured.new()
  return setmetatable({ by = {}, names = {}, rendering_bytes = 0 }, Measured)
end

--- Adds the bytes of renderings in the run's own process, in addition to those of every bucket.
---@param bytes integer
function Measured:add_rendering(bytes) self.rendering_bytes = bytes end

local function bucket_of(self, key)
  local one = self.by[key]
  if not one then
    one = { bucket = key, steps = 0, times = {} }
    self.by[key], self.names[#self.names + 1] = one, key
  end
  return one
end

--- Sets the prediction for a step of a bucket.
---@param key string       the key of its micro-step
---@param name string      its name for people
---@param seconds number   seconds of micro-steps and update
---@param bytes integer|nil bytes of the process while the step runs
function Measured:expect(key, name, seconds, bytes)
  local one = bucket_of(self, key)
  one.bucket, one.predicted_s, one.predicted_bytes = name, seconds, bytes
end

--- Adds the time of one step, without waits for data.
---@param key string
---@param seconds number
---@param bytes integer|nil  the most bytes that the process had until the end of the step
function Measured:add(key, seconds, bytes)
  local one = bucket_of(self, key)
  one.times[one.steps % MOST + 1], one.steps = seconds, one.steps + 1
  one.measured_bytes = bytes
end

--- A row per bucket: {bucket, steps, predicted_s, measured_s (the median), off (measured divided by
-- predicted, minus 1), spread (of the middle half of the steps, divided by the median),
-- predicted_bytes, measured_bytes}; nil for what was not predicted, or if there are too few steps.
---@return table[]
function Measured:rows()
  local rows = {}
  for i, key in ipairs(self.names) do
    local one = self.by[key]
    local row = { bucket = one.bucket, steps = one.steps, predicted_s = one.predicted_s,
      predicted_bytes = one.predicted_bytes and one.predicted_bytes + self.rendering_bytes,
      measured_bytes = one.measured_bytes }
    if one.steps >= LEAST then
      local times = table.move(one.times, 1, #one.times, 1, {})
      table.sort(times)
      row.measured_s = times[(#times + 1) // 2]
      row.spread = (times[(3 * #times + 3) // 4] - times[(#times + 3) // 4]) / row.measured_s
      row.off = row.predicted_s and row.measured_s / row.predicted_s - 1
    end
    rows[i], row.key = row, key
  end
  return rows
end

-- the largest value of a field over all rows; the largest size of a process never shrinks
local function most(rows, field)
  local found = 0
  for _, row in ipairs(rows) do
    found = math.max(found, row[field] or 0)
  end
  return found
end

--- Were the steps of a bucket a tenth longer, or shorter, than predicted, and is that more than
-- they differ from each other?
---@param row table  from Measured:rows
---@return boolean
function measured.is_off(row)
  return row.off ~= nil and math.abs(row.off) > math.max(TOLERANCE, row.spread)
end

--- The text about steps that differ from the prediction while other processes wanted the
-- processors.
---@param rows table[]      from Measured:rows
---@param busy string|nil   the other processes; nil: the processors were free
---@return string|nil       nil if the times can be compared
function measured.not_held(rows, busy)
  for _, row in ipairs(busy and rows or {}) do
    if measured.is_off(row) then
      return "times of steps are not compared with the prediction: " .. busy
    end
  end
end

--- Lines for the log: buckets whose steps were more than a tenth longer, or shorter, than
-- predicted, if steps of a bucket differ less from each other; and the process, if its size differs
-- that much from the prediction. Times are left out if other processes wanted the processors.
---@param busy string|nil  the reason why times cannot be compared
---@return string[]
function Measured:lines(busy)
  local lines, rows = {}, self:rows()
  local had, predicted = most(rows, "measured_bytes"), most(rows, "predicted_bytes")
  -- memory of a GPU is not memory of the process, and is not predicted here
  had = predicted > 0 and had or 0
  if had > 0 and math.abs(had - predicted) > math.max(TOLERANCE * predicted, LITTLE) then
    lines[1] = ("%.0f MB were resident, %.0f MB were predicted: %+.0f %%"):format(had / 1e6,
      predicted / 1e6, (had / predicted - 1) * 100)
  end
  local not_held = measured.not_held(rows, busy)
  lines[#lines + 1] = not_held
  for _, row in ipairs(not_held and {} or rows) do
    if measured.is_off(row) then
      lines[#lines + 1] = ("bucket %s took %.1f ms a step, %.1f ms were predicted: %+.0f %%")
        :format(row.bucket, row.measured_s * 1000, row.predicted_s * 1000, row.off * 100)
    end
  end
  return lines
end

-- A field that is a number, a text or a table; nil if a line of the journal lacks it, because it is
-- damaged or of another version.
local function stated(entry, name, kind)
  local value = entry[name]
  return type(value) == (kind or "number") and value or nil
end

-- rows of an entry that are about buckets
local function buckets_of(entry)
  local rows = {}
  for _, row in ipairs(stated(entry, "buckets", "table") or {}) do
    rows[#rows + 1] = type(row) == "table" and stated(row, "key", "string") and row or nil
  end
  return rows
end

-- Reads the predictions at the start of a run, as measured.of_run gives them; also the seconds of
-- a step in addition to its micro-steps, and the number of micro-steps.
local function read_start(facts, entry)
  local machine = stated(entry, "machine", "table") or {}
  local libraries = stated(machine, "libraries", "table") or {}
  facts.began, facts.ranks = stated(entry, "began_bytes"), stated(entry, "ranks")
  facts.threads, facts.device = stated(machine, "threads"), stated(libraries, "device", "string")
    or "cpu"
  return (stated(entry, "update_s") or 0) + (stated(entry, "talk_s") or 0),
    stated(entry, "rounds") or 1
end

--- Reads predictions and measurements from a run's journal. Steps with batches of several buckets
-- are not counted, and neither are fields that a line lacks.
---@param dir string
---@return mr.Measured
---@return table facts  resident: the most bytes of the process, printed at the end of the run;
---   began: bytes of the process when the run began; busy: the other processes that wanted the
---   processors, in the last launch with such; ranks, threads of each; device; rendered: {seconds,
---   cpu_s} of each rendering of the run's own prompts; nil for fields that the journal does not
---   have
function measured.of_run(dir)
  local self, update_s, rounds, facts = measured.new(), 0, 1, {}
  local function expect(row)
    local seconds = stated(row, "seconds")
    if stated(row, "key", "string") and seconds then
      self:expect(row.key, stated(row, "bucket", "string") or row.key, rounds * seconds + update_s,
        stated(row, "resident_bytes"))
    end
  end
  for entry in run.entries(dir) do
    local key, time_s = stated(entry, "bucket", "string"), stated(entry, "time_s")
    local wait_s = stated(entry, "data_wait_s")
    if entry.kind == "start" then
      update_s, rounds = read_start(facts, entry)
      for _, row in ipairs(buckets_of(entry)) do
        expect(row)
      end
    elseif entry.kind == "bucket" then
      expect(entry)
    elseif entry.kind == "step" and (entry.even or entry.batches == 1) and key and time_s
        and wait_s then
      self:add(key, time_s - wait_s)
    end
    if entry.kind == "samples" and entry.set == "recipe" and stated(entry, "seconds") then
      facts.rendered = facts.rendered or {}
      table.insert(facts.rendered, { seconds = entry.seconds, cpu_s = stated(entry, "cpu_s") })
    end
    if entry.kind == "end" or entry.kind == "stop" then
      facts.busy = stated(entry, "busy", "string") or facts.busy
      facts.resident = stated(entry, "resident_bytes") or facts.resident
      for _, row in ipairs(buckets_of(entry)) do
        bucket_of(self, row.key).measured_bytes = stated(row, "measured_bytes")
      end
    end
  end
  return self, facts
end

return measured
