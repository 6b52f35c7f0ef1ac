--- The events of a step over time: a trace that browsers show, and the path through them that
-- decides how long the step is.
-- @module moonreel.plan.timeline
local json = require "moonreel.core.json"

local timeline = {}

-- streams in the order of the output
local streams = { "compute", "comm_intra", "comm_inter", "h2d", "d2h", "disk", "read", "files" }

--- The critical path of a step from its start to its end; consecutive events with the same name
-- form one row.
---@param how table  from schedule.of: events, times
---@return table[] rows  {name, stream, seconds, share, events}
function timeline.path(how)
  local rows, times = {}, how.times
  for _, i in ipairs(times.path) do
    local event, last = how.events[i], rows[#rows]
    local seconds = times.finish[i] - times.start[i]
    if last and last.name == event.name and last.stream == event.stream then
      last.seconds, last.events = last.seconds + seconds, last.events + 1
    elseif seconds > 0 then
      rows[#rows + 1] = { name = event.name, stream = event.stream, seconds = seconds, events = 1 }
    end
  end
  for _, row in ipairs(rows) do
    row.share = row.seconds / how.seconds
  end
  return rows
end

--- How busy each stream is.
---@param how table
---@return table[] rows  {stream, seconds, share}
function timeline.busy(how)
  local rows = {}
  for _, stream in ipairs(streams) do
    local seconds = how.times.busy[stream]
    if seconds and seconds > 0 then
      rows[#rows + 1] = { stream = stream, seconds = seconds, share = seconds / how.seconds }
    end
  end
  return rows
end

local function title(event)
  return event.bucket and ("%s %d"):format(event.name, event.bucket) or event.name
end

--- The events of a step in the order of their starts.
---@param how table
---@return table[] rows  {begins, ends, stream, what, after, decides}: seconds; the name with the
---   number of its bucket; the event that it waits for; is it on the critical path?
function timeline.rows(how)
  local rows, times, decides = {}, how.times, {}
  for _, i in ipairs(times.path) do
    decides[i] = true
  end
  for i, event in ipairs(how.events) do
    local after = {}
    for _, k in pairs(event.after or {}) do
      after[#after + 1] = title(how.events[k])
    end
    rows[i] = { begins = times.start[i], ends = times.finish[i], stream = event.stream,
      what = title(event), after = table.concat(after, ", "), decides = decides[i] or false,
      number = i }
  end
  table.sort(rows, function(a, b)
    if a.begins ~= b.begins then
      return a.begins < b.begins
    end
    return a.number < b.number
  end)
  return rows
end

--- Steps as a Chrome trace for chrome://tracing or Perfetto: a process for each step, a row per
-- stream.
---@param steps table[]  {name, how}
---@return string
function timeline.trace(steps)
  local out, row_of = json.array(), {}
  for i, stream in ipairs(streams) do
    row_of[stream] = i
  end
  for pid, step in ipairs(steps) do
    out[#out + 1] = { name = "process_name", ph = "M", pid = pid, args = { name = step.name } }
    local named, times = {}, step.how.times
    local decides = {}
    for _, i in ipairs(times.path) do
      decides[i] = true
    end
    for i, event in ipairs(step.how.events) do
      local tid = row_of[event.stream]
      if not named[tid] then
        named[tid] = true
        out[#out + 1] = { name = "thread_name", ph = "M", pid = pid, tid = tid,
          args = { name = event.stream } }
      end
      out[#out + 1] = { name = event.name, ph = "X", pid = pid, tid = tid,
        ts = times.start[i] * 1e6, dur = (times.finish[i] - times.start[i]) * 1e6,
        args = { decides = decides[i] or false } }
    end
  end
  return json.encode({ traceEvents = out, displayTimeUnit = "ms" })
end

return timeline
