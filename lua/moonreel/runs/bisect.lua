--- Finds the first checkpoint of a run that fails a test, by bisection, and the journal's events
-- between it and the last one that passes. It assumes that all checkpoints from the first failure
-- on fail.
-- @module moonreel.runs.bisect
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local find = require "moonreel.runs.find"
local history = require "moonreel.runs.history"

local bisect = {}

local JUMP <const> = 2 -- a change of the learning rate by more than this factor is reported

--- The checkpoints of a run, of all its stages, oldest first; damaged ones are left out.
---@param dir string
---@return table[]  {step, stage = name of the stage or nil, path, hash = hash of its manifest}
---@return table[]  damaged ones: {step, stage, path, why}
function bisect.checkpoints(dir)
  local good, bad = {}, {}
  for _, part in ipairs(find.parts(dir)) do
    local steps = ckpt.steps(part.dir)
    for i = #steps, 1, -1 do
      local one = { step = steps[i], stage = part.stage, path = ckpt.dir(part.dir, steps[i]) }
      local opened, c = pcall(ckpt.open, one.path)
      if opened then
        one.hash = base.hash128(base.read_file(one.path .. "/MANIFEST.json"))
        c:close()
        good[#good + 1] = one
      else
        one.why = tostring(c)
        bad[#bad + 1] = one
      end
    end
  end
  return good, bad
end

-- the checkpoint nearest to the middle that was not set aside; nil: there is none
local function next_of(low, high, aside)
  local middle, best = (low + high) // 2, nil
  for i = low + 1, high - 1 do
    if not aside[i] and (not best or math.abs(i - middle) < math.abs(best - middle)) then
      best = i
    end
  end
  return best
end

--- Searches by bisection. Both ends are judged first; then at most log2(n) others, not counting
-- those that cannot be judged.
---@param n integer
---@param judge fun(i: integer): string  "good", "bad" or "skip": it cannot be judged
---@return table  {outcome = "found", "all good", "first is bad" or "none judged", good, bad =
---   numbers or nil, aside = numbers between them, or before the first bad one, that could not be
---   judged}
function bisect.search(n, judge)
  local aside = {}
  -- the first one from there on, in a direction, that can be judged
  local function judged_from(i, last, by)
    for k = i, last, by do
      local verdict = judge(k)
      if verdict ~= "skip" then
        return k, verdict
      end
      aside[k] = true
    end
  end
  local function result(outcome, good, bad)
    local list = {}
    for i = (good or 0) + 1, (bad or n + 1) - 1 do
      list[#list + 1] = aside[i] and i or nil
    end
    return { outcome = outcome, good = good, bad = bad, aside = list }
  end
  local low, verdict = judged_from(1, n, 1)
  if not low then
    return result("none judged")
  elseif verdict == "bad" then
    return result("first is bad", nil, low)
  end
  local high, newest = judged_from(n, low + 1, -1)
  if not high or newest == "good" then
    return result("all good", high or low)
  end
  local i = next_of(low, high, aside)
  while i do
    verdict = judge(i)
    if verdict == "skip" then
      aside[i] = true
    elseif verdict == "good" then
      low = i
    else
      high = i
    end
    i = next_of(low, high, aside)
  end
  return result("found", low, high)
end

local function is_step(one) return one.kind == "step" or one.kind == "skip" end

-- the index of the last line of a step in a history; the first checkpoint of a stage may be of step
-- 0
local function place_of(list, one)
  for i = #list, 1, -1 do
    local at = list[i]
    if at.stage == one.stage and at.entry.step == one.step
        and (is_step(at) or one.step == 0 and at.kind == "start") then
      return i
    end
  end
end

-- a line about the jump of the learning rate at a step; nil: there is no jump
local function jump_of(one, before)
  local lr = one.entry.lr
  if type(lr) ~= "number" or not before or lr <= 0 or before <= 0
      or math.max(lr / before, before / lr) <= JUMP then
    return nil
  end
  return { wall = one.wall, kind = "lr", stage = one.stage, entry = one.entry,
    text = ("step %d: the learning rate changes from %.3g to %.3g"):format(one.entry.step, before,
      lr) }
end

--- The lines in journals, notes and quarantine of a run between two checkpoints, in the order of
-- time: all except lines of steps and saves; also skipped steps and jumps of the learning rate.
---@param dir string
---@param good table  from bisect.checkpoints
---@param bad table
---@return table[]    {wall, kind, stage, text, entry}; empty if the journal lacks these steps
function bisect.events(dir, good, bad)
  local list, found = history.open(dir, 1):more(), {}
  local first, last = place_of(list, good), place_of(list, bad)
  if not first or not last then
    return found
  end
  -- lines that judge a step follow its own line
  while last < #list and not is_step(list[last + 1]) and list[last + 1].kind ~= "start" do
    last = last + 1
  end
  local lr = list[first].entry.lr
  for i = first + 1, last do
    local one = list[i]
    local of_good = one.kind == "spike" and one.stage == good.stage
      and one.entry.step == good.step
    if one.kind == "step" then
      found[#found + 1] = jump_of(one, lr)
      lr = type(one.entry.lr) == "number" and one.entry.lr or lr
    elseif one.kind ~= "save" and not of_good then
      found[#found + 1] = one
    end
  end
  return found
end

return bisect
