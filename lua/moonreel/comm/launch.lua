--- Ranks of this host from their start to their end: watched, ended if one hangs, restarted from
-- their last checkpoint.
-- @module moonreel.comm.launch
local base = require "moonreel.core.base"
local core = require "moonreel.core.launch"
local options = require "moonreel.text.options"
local report = require "moonreel.life.report"
local rings = require "moonreel.life.rings"
local watch = require "moonreel.life.watch"

local launch = {}

local LOOK_MS <const> = 100
local STOPPED <const> = { [129] = true, [130] = true,
  [143] = true } -- exit codes after a stop request and a save
local NODE <const> = 6                                 -- exit code of ranks that lost contact
local PAUSE_MOST_S <const> = 60
local REPEATED <const> = 2 -- failures of a host after which a launch without it is suggested

local function silent() end

-- reports ranks that hang, and ends one that hangs for too long; true: it was reported
local function look(running, page, eye, o)
  for _, event in ipairs(eye:look()) do
    local path = event.kind == "hang" and report.write(page, event)
    o.say(path and ("%s; see %s"):format(event.text, path) or event.text)
  end
  local standing, times = eye:standing()
  if standing and times > o.patience then
    running:fail(standing.rank, standing.text)
    return true
  end
end

-- the first difference between ranks that lost contact, if they report nothing else
local function difference(page)
  local about, logs = page:about(), {}
  for rank = about.first, about.first + about.ranks - 1 do
    logs[rank] = page:ops(rank)
  end
  return rings.first_difference(logs)
end

--- The place of a launch in its run.
---@param page mr.LifePage
---@return string|nil dir    directory of their run
---@return integer step      the largest step that any rank has begun
---@return boolean met        one of them has passed the rendezvous
function launch.stand(page)
  local about, most, met = page:about(), 0, false
  for rank = about.first, about.first + about.ranks - 1 do
    local r = page:rank(rank)
    most, met = math.max(most, r.step), met or watch.has_met(r.phase)
  end
  return about.dir, most, met
end

-- one launch: how it ended, with the run's directory and step
local function once(words, ranks, o)
  local running <close> = core.start({ "moonreel", table.unpack(words) }, ranks)
  local page = running:page()
  local eye = o.watch and watch.new(page, o.watch)
  local named = false
  while running:look(LOOK_MS) > 0 do
    named = named or eye and look(running, page, eye, o)
  end
  local ended = running:ended()
  -- a rank that failed outside a collective has reported the reason itself
  local found = ended.exit == NODE and not named and page:rank(ended.rank).open and difference(page)
  if found then
    ended.text = ("%s; %s"):format(ended.text, rings.describe(found))
  end
  ended.dir, ended.step = launch.stand(page)
  page:close()
  return ended
end

-- Was a rank lost, rather than wrong? An error in a recipe or in data would come again.
local function was_lost(ended)
  return not ended.asked and not STOPPED[ended.exit] and (ended.exit == NODE or ended.exit > 128)
end

local read_options = options.declare("comm.launch", {
  { "watch", "table", "seconds by phase that a rank may hang; absent: no watch" },
  { "patience", "number", "a rank is ended after this many times its limit (default 3)" },
  { "restarts", "integer", "number of restarts after losses (default 0)" },
  { "restart_steps", "integer", "new steps that reset the count of restarts (default 200)" },
  { "restart_pause", "number", "seconds before the first restart (default 1)" },
  { "again", "function", "returns the words that continue a run directory, which may be nil" },
  { "say", "function", "called with each line about the launch" },
  { "without", "function", "returns the command that continues without hosts, given their names "
    .. "and a run directory, which may be nil; absent: only the option is passed" },
})

-- hosts with repeated failures, and the command that continues without them; nil: there is none, or
-- no other host would be left
local function unsteady(failures, hosts, dir, o)
  local names, lines = {}, {}
  for host, times in pairs(failures) do
    names[#names + 1] = times >= REPEATED and host or nil
  end
  if #names == 0 or #names >= (hosts or 0) then
    return nil
  end
  table.sort(names)
  for i, host in ipairs(names) do
    lines[i] = ("host %s: %d failures"):format(host, failures[host])
  end
  return ("%s; try without: %s"):format(table.concat(lines, ", "), o.without
    and o.without(names, dir) or "--exclude " .. table.concat(names, ","))
end

--- Launches a run again after losses, from its last checkpoint.
---@param start fun(words: string[]): table  one launch: how it ended, with exit, text and asked,
---   dir of the run and step; with several hosts: the one that failed first, the number of hosts,
---   met: whether their ranks passed the rendezvous
---@param words string[]
---@param o table    restarts, restart_steps, restart_pause, again, say, without as in launch.run
---@return integer exit code  of the rank that failed first, or 0
---@return string|nil text    "rank 2 ended with exit code 3"; the earliest error of the last launch
function launch.insist(start, words, o)
  local restarts, say = o.restarts or 0, o.say or silent
  local tried, progress, next_words, dir = 0, nil, words, nil
  local lost, failures, met = {}, {}, false
  while true do
    local ended = start(next_words)
    -- a launch whose ranks never passed the rendezvous is wrong, and would fail again
    met = met or ended.met ~= false
    if restarts == 0 or not met or not was_lost(ended) then
      return ended.exit, ended.text
    end
    lost[#lost + 1] = ("  step %d: %s"):format(ended.step, ended.text)
    if progress and ended.step - progress >= (o.restart_steps or 200) then
      tried = 0
    end
    dir, progress, tried = ended.dir or dir, math.max(ended.step, progress or 0), tried + 1
    if ended.host then
      failures[ended.host] = (failures[ended.host] or 0) + 1
    end
    local proposal = unsteady(failures, ended.hosts, dir, o)
    if tried > restarts then
      say(("%d restarts without %d new steps:\n%s%s"):format(restarts, o.restart_steps or 200,
        table.concat(lost, "\n"), proposal and "\n  " .. proposal or ""))
      return ended.exit, ended.text
    elseif proposal then
      say(proposal)
    end
    local pause = math.min((o.restart_pause or 1) * 2 ^ (tried - 1), PAUSE_MOST_S)
    next_words = o.again(dir)
    say(("%s at step %d; restart %d of %d in %g s, %s"):format(ended.text, ended.step, tried,
      restarts, pause, next_words == words and "from the start" or "from " .. dir))
    base.sleep(pause)
  end
end

--- Starts this program `ranks` times on this host, with these words after its name.
---@param words string[]
---@param ranks integer
---@param given table|nil  watch, patience, restarts, restart_steps, restart_pause, again, say
---@return integer exit code  as in launch.insist, like the next result
---@return string|nil text
function launch.run(words, ranks, given)
  local o = read_options(given)
  o.patience, o.say = o.patience or 3, o.say or silent
  return launch.insist(function(next_words) return once(next_words, ranks, o) end, words, o)
end

return launch
