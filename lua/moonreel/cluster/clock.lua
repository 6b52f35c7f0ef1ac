--- Measures clock differences between hosts. Each host is asked several times, and the fastest
-- answer gives the tightest bound.
-- @module moonreel.cluster.clock
local base = require "moonreel.core.base"

local clock = {}

local TIMES, APART_S, STEP_S = 8, 0.05, 0.01

--- A clock difference as text: "+0.4 ms", "-12.3 s", "+3 h 05 min", "-2 days 4 h".
---@param s number      seconds
---@param sign boolean|nil  write + before values that are not negative
---@return string
function clock.text(s, sign)
  local far, mark = math.abs(s), s < 0 and "-" or sign and "+" or ""
  local whole = math.floor(far + 0.5)
  if far < 1 then
    return ("%s%.1f ms"):format(mark, far * 1e3)
  elseif far < 120 then
    return ("%s%.1f s"):format(mark, far)
  elseif whole < 7200 then
    return ("%s%d min %02d s"):format(mark, whole // 60, whole % 60)
  elseif whole < 172800 then
    return ("%s%d h %02d min"):format(mark, whole // 3600, whole % 3600 // 60)
  end
  return ("%s%d days %d h"):format(mark, whole // 86400, whole % 86400 // 3600)
end

--- Computes one measurement of a host from several answers.
---@param list table[]  {sent_s, came_s: of the wall clock here; wall_s, now_s: there; service}
---@return table  offset_s, bound_s, step_s, service, verdict
function clock.judge(list)
  local best, first, last = list[1], list[1], list[#list]
  for _, one in ipairs(list) do
    if one.came_s - one.sent_s < best.came_s - best.sent_s then
      best = one
    end
  end
  local found = { offset_s = best.wall_s - (best.sent_s + best.came_s) / 2,
    bound_s = (best.came_s - best.sent_s) / 2, service = best.service,
    step_s = (last.wall_s - first.wall_s) - (last.now_s - first.now_s) }
  if math.abs(found.offset_s) - found.bound_s > APART_S then
    found.verdict = "apart"
  elseif math.abs(found.step_s) > STEP_S then
    found.verdict = "steps"
  else
    found.verdict = found.service and "ok" or "no service"
  end
  return found
end

--- Measures all hosts of a survey.
---@return table[]  {host, answer = judge's} or {host, reason}
function clock.measure(survey)
  local all, rows = {}, nil
  for _ = 1, TIMES do
    local sent, sent_now = base.wall_s(), base.now_s()
    rows = survey:ask "time"
    for i, row in ipairs(rows) do
      all[i] = all[i] or {}
      if row.answer then
        row.answer.sent_s = sent
        row.answer.came_s = sent + (row.came_s or base.now_s()) - sent_now
        all[i][#all[i] + 1] = row.answer
      end
    end
  end
  for i, row in ipairs(rows) do
    row.answer, row.came_s = row.answer and clock.judge(all[i]) or nil, nil
  end
  return rows
end

return clock
