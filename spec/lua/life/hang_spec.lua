--- Ranks that hang are named with their phase. Launches run in parallel, and each goes through all
-- ways in which a rank can hang (spec/support/hang_cases.lua).
-- Covers: lua/moonreel/life/watch.lua lua/moonreel/life/rings.lua core/comm/launch.c
local base = require "moonreel.core.base"
local launch = require "moonreel.core.launch"
local core = require "moonreel.core.life"
local folder = require "spec.support.folder"
local rings = require "moonreel.life.rings"
local watch = require "moonreel.life.watch"

-- a larger number makes this spec longer
local LAUNCHES <const> = tonumber(os.getenv "MOONREEL_HANGS" or 6)
local TOGETHER <const>, RANKS <const>, FLOOR_S <const> = 6, 3, 0.5
local KNOWN_WITHIN_S <const>, LOST_AFTER_S <const> = 10, 120

local dir = folder.new()
teardown(function() dir:remove() end)

local function open(number)
  local place = dir.path .. "/" .. number
  local cases = dofile "spec/support/hang_cases.lua"(number, RANKS)
  base.make_dir(place)
  for i, case in ipairs(cases) do
    case.release = place .. "/" .. i
    if case.kind == "lock" then
      os.execute(("mkfifo '%s.fifo'"):format(case.release))
    end
  end
  local running = launch.start({ "moonreel", "spec/support/hang_program.lua", dir.path,
    tostring(number) }, RANKS)
  local floors = {}
  for _, phase in ipairs(watch.phases) do
    floors[phase] = FLOOR_S
  end
  local page = running:page()
  return { running = running, page = page, watch = watch.new(page, floors), cases = cases, at = 1,
    since = 0 }
end

local release = {}

function release.stop(one, case)
  local r, about = one.page:rank(case.rank), one.page:about()
  core.signal(r.pid, r.start, about.uid, 18)
end

function release.sleep(_, case) base.replace_file(case.release, "") end
function release.lock(_, case) io.open(case.release .. ".fifo", "w"):close() end
release.slow = release.sleep

-- this spec does not limit how long processes take to start
local function begun(one)
  for rank = 0, RANKS - 1 do
    one.begun = one.begun or rank == RANKS - 1 and one.page:rank(rank).steps > 0
    if not one.begun and one.page:rank(rank).steps == 0 then
      return false
    end
  end
  return true
end

-- A defect of this spec must not delay all other specs. Limits count in the watch's clock, which
-- stops when the machine stops. They are longer when the machine stopped during one of the steps
-- that they follow.
local function in_time(one)
  local r, longest = one.page:rank(one.cases[one.at].rank), 0
  for _, phase in ipairs(watch.phases) do
    local _, idle = one.watch:limit(phase)
    longest = math.max(longest, idle)
  end
  assert.is_true(one.watch.clock_s < one.since + LOST_AFTER_S + longest,
    ("%s in %s is not reported: rank %d is in %s"):format(one.cases[one.at].kind,
      one.cases[one.at].phase, r.rank, r.phase))
end

-- looks at a launch once; returns nil when it has ended
local function look(one)
  local case = one.cases[one.at]
  if one.running:look(5) == 0 then
    return nil
  end
  in_time(one)
  if not begun(one) then
    return true
  end
  for _, event in ipairs(one.watch:look()) do
    if event.kind ~= "on" then
      local report = ("%s in %s: %s"):format(case.kind, case.phase, event.text)
      assert.equal(case.kind == "slow" and "slow" or "hang", event.kind, report)
      assert.equal(case.rank, event.rank, report)
      if case.kind == "skip" then
        -- the rank went on to its next collective, and the launch ends by itself
        assert.is_truthy(event.difference, report)
        return true
      end
      if event.kind == "hang" then
        assert.equal(case.phase, event.phase, report)
        assert.equal(case.kind == "stop", event.stopped, report)
        -- a machine that stopped makes longer steps usual
        assert.is_true(event.seconds < KNOWN_WITHIN_S or event.limit > KNOWN_WITHIN_S - 1, report)
        assert.equal(case.kind == "sleep", report:find("clip 12", 1, true) ~= nil, report)
      end
      release[case.kind](one, case)
      one.at, one.since = one.at + 1, one.watch.clock_s
      case = one.cases[one.at]
    end
  end
  return true
end

-- the last case ends the launch: the rings show which rank left a call out
local function autopsy(one)
  assert.equal(#one.cases, one.at, "cases that were reported")
  local case, logs = one.cases[one.at], {}
  for rank = 0, RANKS - 1 do
    logs[rank] = one.page:ops(rank)
  end
  local found = rings.first_difference(logs)
  assert.equal(case.rank, found.rank, rings.describe(found))
  assert.equal("all_reduce", found.expected.kind)
  assert.equal(6, one.running:ended().exit)
end

describe("a rank that hangs", function()
  it("is named with its phase, for all phases and all ways to hang", function()
    local next, open_now, seen = 1, {}, 0
    while next <= LAUNCHES or #open_now > 0 do
      while next <= LAUNCHES and #open_now < TOGETHER do
        open_now[#open_now + 1], next = open(next), next + 1
      end
      for i = #open_now, 1, -1 do
        local one = open_now[i]
        if not look(one) then
          autopsy(one)
          seen = seen + #one.cases
          one.running:close()
          table.remove(open_now, i)
        end
      end
    end
    assert.is_true(seen >= 10 * LAUNCHES)
  end)
end)
