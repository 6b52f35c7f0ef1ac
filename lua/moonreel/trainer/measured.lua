--- Measured steps of each bucket, compared with the prediction before the first one: seconds, and
-- bytes of the process.
-- @module moonreel.trainer.measured
local run = require "moonreel.run"

local truth = {}

local LEAST, MOST = 5, 101  -- steps that a median needs, and the newest that it is of
local TOLERANCE = 0.1       -- of the prediction: more is said in the log
local LITTLE = 32 << 20     -- bytes that are not worth a line

local Truth = {}
Truth.__index = Truth

--- Nothing predicted and nothing measured.
---@return mr.Truth
function truth.new()
  return setmetatable({ by = {}, names = {}, beside_bytes = 0 }, Truth)
end

--- What renders in the process of a run has bytes in addition to those of every bucket.
---@param bytes integer
function Truth:beside(bytes) self.beside_bytes = bytes end

local function bucket_of(self, key)
  local one = self.by[key]
  if not one then
    one = { bucket = key, steps = 0, times = {} }
    self.by[key], self.names[#self.names + 1] = one, key
  end
  return one
end

--- What a step of a bucket is expected to take.
---@param key string       of its micro-step
---@param name string      for people
---@param seconds number   micro-steps and update
---@param bytes integer|nil of the process while it runs
function Truth:expect(key, name, seconds, bytes)
  local one = bucket_of(self, key)
  one.bucket, one.predicted_s, one.predicted_bytes = name, seconds, bytes
end

--- What one step took, waits for data left out.
---@param key string
---@param seconds number
---@param bytes integer|nil  most that the process ever had, when the step was over
function Truth:add(key, seconds, bytes)
  local one = bucket_of(self, key)
  one.times[one.steps % MOST + 1], one.steps = seconds, one.steps + 1
  one.measured_bytes = bytes
end

--- A row per bucket: {bucket, steps, predicted_s, measured_s (the median), off (measured over
-- predicted, less one), spread (of the middle half of the steps, over the median),
-- predicted_bytes, measured_bytes}; nil what was not predicted, or where there are too few steps.
---@return table[]
function Truth:rows()
  local rows = {}
  for i, key in ipairs(self.names) do
    local one = self.by[key]
    local row = { bucket = one.bucket, steps = one.steps, predicted_s = one.predicted_s,
      predicted_bytes = one.predicted_bytes and one.predicted_bytes + self.beside_bytes,
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

-- the largest of a field over all rows; a process never has less than before
local function most(rows, field)
  local found = 0
  for _, row in ipairs(rows) do
    found = math.max(found, row[field] or 0)
  end
  return found
end

--- Did the steps of a bucket take a tenth longer, or shorter, than predicted, and more than they
-- differ among each other?
---@param row table  of Truth:rows
---@return boolean
function truth.is_off(row)
  return row.off ~= nil and math.abs(row.off) > math.max(TOLERANCE, row.spread)
end

--- What to say of steps that took another time than predicted while others wanted the processors.
---@param rows table[]      of Truth:rows
---@param busy string|nil   who wanted them; nil: they were free
---@return string|nil       nil where the seconds count
function truth.not_held(rows, busy)
  for _, row in ipairs(busy and rows or {}) do
    if truth.is_off(row) then
      return "what steps took is not held against the prediction: " .. busy
    end
  end
end

--- Lines for the log: buckets that took more than a tenth longer, or shorter, than predicted, where
-- steps of a bucket differ less among each other, and the process where it became that much larger,
-- or stayed smaller. Of seconds that were taken while others wanted the processors nothing is said.
---@param busy string|nil  why seconds say nothing here
---@return string[]
function Truth:lines(busy)
  local lines, rows = {}, self:rows()
  local had, predicted = most(rows, "measured_bytes"), most(rows, "predicted_bytes")
  -- what a GPU has is not of the process: nothing is predicted of that
  had = predicted > 0 and had or 0
  if had > 0 and math.abs(had - predicted) > math.max(TOLERANCE * predicted, LITTLE) then
    lines[1] = ("%.0f MB were resident, %.0f MB were predicted: %+.0f %%"):format(had / 1e6,
      predicted / 1e6, (had / predicted - 1) * 100)
  end
  local not_held = truth.not_held(rows, busy)
  lines[#lines + 1] = not_held
  for _, row in ipairs(not_held and {} or rows) do
    if truth.is_off(row) then
      lines[#lines + 1] = ("bucket %s took %.1f ms a step, %.1f ms were predicted: %+.0f %%")
        :format(row.bucket, row.measured_s * 1000, row.predicted_s * 1000, row.off * 100)
    end
  end
  return lines
end

-- a field that is a number, a text or a table; nil where a line of the journal has none such, being
-- damaged or of another version
local function stated(entry, name, kind)
  local value = entry[name]
  return type(value) == (kind or "number") and value or nil
end

-- rows of an entry that are of buckets
local function buckets_of(entry)
  local rows = {}
  for _, row in ipairs(stated(entry, "buckets", "table") or {}) do
    rows[#rows + 1] = type(row) == "table" and stated(row, "key", "string") and row or nil
  end
  return rows
end

-- what a run predicted at its start, as truth.of_run gives it; and seconds of a step beside its
-- micro-steps, and how many these are
local function read_start(facts, entry)
  local machine = stated(entry, "machine", "table") or {}
  local libraries = stated(machine, "libraries", "table") or {}
  facts.began, facts.ranks = stated(entry, "began_bytes"), stated(entry, "ranks")
  facts.threads, facts.device = stated(machine, "threads"), stated(libraries, "device", "string")
    or "cpu"
  return (stated(entry, "update_s") or 0) + (stated(entry, "talk_s") or 0),
    stated(entry, "rounds") or 1
end

--- The same out of a run's journal. Steps whose batches were of several buckets count for none, and
-- neither does what a line lacks.
---@param dir string
---@return mr.Truth
---@return table facts  resident: bytes at most, printed at the end of the run; began: bytes of the
---   process when it began; busy: who else wanted the processors, in the last launch where someone
---   did; ranks, threads of each; device; rendered: {seconds, cpu_s} of each rendering of the
---   run's own prompts; nil what the journal does not tell
function truth.of_run(dir)
  local self, update_s, rounds, facts = truth.new(), 0, 1, {}
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

return truth
