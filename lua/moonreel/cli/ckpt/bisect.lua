--- moonreel ckpt bisect: run a command on checkpoints of a run until the first one that fails is
-- known.
-- @module moonreel.cli.ckpt.bisect
local base = require "moonreel.core.base"
local bisect = require "moonreel.runs.bisect"
local find = require "moonreel.runs.find"
local json = require "moonreel.core.json"
local words_of = require "moonreel.runs.words"

local ASIDE <const>, MOST_EXIT <const> = 125, 127

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

local function name_of(one)
  return (one.stage and "stage " .. one.stage .. ", " or "") .. "step " .. one.step
end

-- ---- what was found so far ----

-- Opens the verdicts of a bisect that was interrupted, by the hashes of checkpoints. They apply to
-- the same command only. A bisect that ends removes them.
local function open_record(dir, words, again)
  local path = dir .. "/bisect.json"
  local good, was = pcall(function() return json.decode(base.read_file(path), path) end)
  local same = good and type(was) == "table" and type(was.exits) == "table"
    and type(was.command) == "table"
    and table.concat(was.command, "\0") == table.concat(words, "\0")
  return { path = path, command = json.array(words),
    exits = same and not again and was.exits or {} }
end

local function remember(record, one, exit, say)
  record.exits[one.hash] = exit
  local good, problem = pcall(base.replace_file, record.path,
    json.encode({ command = record.command, exits = record.exits }, { indent = 2 }) .. "\n")
  if not good and not record.reported then
    record.reported = true
    say(("%s; an interrupted bisect begins from scratch"):format(tostring(problem)))
  end
end

-- ---- one checkpoint ----

-- The line for the shell. The command writes where this program writes; with --json it writes to
-- standard error.
local function line_of(words, path, opts)
  local list = { ("MOONREEL_CKPT=%s exec"):format(quoted(path)) }
  for i, word in ipairs(words) do
    local before = word:match "^([%w_.-]+=){}$" or word == "{}" and ""
    list[i + 1] = quoted(before and before .. path or word)
  end
  return table.concat(list, " ") .. (opts.json and " >&2" or "")
end

-- Returns the exit code of the command. Any other end of the command ends the search.
local function run(words, one, opts)
  io.stdout:flush()
  local _, how, code = os.execute(line_of(words, one.path, opts))
  if how == "signal" or code > MOST_EXIT then
    local signal = how == "signal" and code or code - 128
    error({ code = "MR_E_FAIL", exit = (signal == 2 or signal == 15) and 128 + signal or 1,
      message = ("ckpt bisect: %s: the command ended with signal %d (%s); expected exit 0 to 127\n "
        .. " try: the same command again; the verdicts so far are kept"):format(name_of(one),
          signal, one.path) }, 0)
  end
  return code
end

-- why a failure of this checkpoint proves nothing: it is damaged; nil: its bytes are those that
-- were written
local function damage_of(one)
  local good, problem = pcall(function()
    local c <close> = require("moonreel.ckpt").open(one.path)
    c:verify()
  end)
  return not good and tostring(problem) or nil
end

local function verdict_of(exit) return exit == 0 and "good" or exit == ASIDE and "skip" or "bad" end

-- ---- what is printed ----

-- the text that ends a search
local function conclusion(r)
  if r.outcome == "found" then
    return ("the first bad one: %s, %s\nthe last good one:  %s, %s"):format(name_of(r.bad),
      r.bad.path, name_of(r.good), r.good.path)
  elseif r.outcome == "first is bad" then
    return ("the first one is bad already: %s, %s"):format(name_of(r.bad), r.bad.path)
  elseif r.outcome == "all good" then
    return ("all are good, up to the newest one that could be judged: %s"):format(name_of(r.good))
  end
  return "none could be judged: the command exits 125 for each, or they are damaged"
end

local function print_result(r, events)
  print(conclusion(r))
  if #r.aside > 0 then
    local names = {}
    for i, one in ipairs(r.aside) do
      names[i] = name_of(one)
    end
    print(("not judged, each may be the first bad one: %s"):format(table.concat(names, "; ")))
  end
  if r.outcome == "found" then
    print(#events > 0 and "between them:"
      or "the journal has nothing between them but steps and saves")
    for _, one in ipairs(events) do
      print(("  %s  %s"):format(words_of.time(one.wall), one.text))
    end
  end
end

local function print_json(r, words, judged, events)
  local function plain(one)
    return one and { step = one.step, stage = one.stage, path = one.path }
  end
  local aside, rows = json.array(), json.array()
  for i, one in ipairs(r.aside) do
    aside[i] = plain(one)
  end
  for i, one in ipairs(events) do
    rows[i] = { wall = one.wall, kind = one.kind, stage = one.stage, step = one.entry.step,
      text = one.text }
  end
  print(json.encode({ outcome = r.outcome, command = json.array(words), good = plain(r.good),
    bad = plain(r.bad), aside = aside, judged = judged, events = rows }, { indent = 2 }))
end

-- ---- the search ----

return function(opts, word, ...)
  local words, dir = { ... }, find.one(word, "ckpt bisect", opts.outputs)
  if not os.execute(("command -v %s >/dev/null"):format(quoted(words[1]))) then
    base.raise("MR_E_USAGE", ("ckpt bisect: %s: no such command; try: its path"):format(words[1]))
  end
  local function say(text)
    if opts.json then
      io.stderr:write(text, "\n")
    else
      print(text)
    end
  end
  local list, left_out = bisect.checkpoints(dir)
  for _, one in ipairs(left_out) do
    say(("%s is left out: %s"):format(name_of(one), one.why))
  end
  if #list == 0 then
    base.raise("MR_E_CKPT", ("ckpt bisect: %s has no complete checkpoint; try: moonreel ckpt ls %s")
      :format(dir, dir))
  end
  local record, judged = open_record(dir, words, opts.again), json.array()
  local result = bisect.search(#list, function(i)
    local one = list[i]
    local known = math.tointeger(record.exits[one.hash])
    local exit = known or run(words, one, opts)
    local damage = not known and verdict_of(exit) == "bad" and damage_of(one)
    exit = damage and ASIDE or exit
    local verdict = verdict_of(exit)
    judged[#judged + 1] = { step = one.step, stage = one.stage, exit = exit, verdict = verdict,
      known = known ~= nil }
    say(("%s: %s"):format(name_of(one), damage and "cannot be judged: " .. damage
      or (verdict == "skip" and "cannot be judged" or verdict) .. (known
      and ", as an interrupted bisect has found; --again runs the command again"
      or (", exit %d"):format(exit))))
    if not known then
      remember(record, one, exit, say)
    end
    return verdict
  end)
  os.remove(record.path)
  for i, k in ipairs(result.aside) do
    result.aside[i] = list[k]
  end
  result.good, result.bad = list[result.good], list[result.bad]
  local events = result.outcome == "found" and bisect.events(dir, result.good, result.bad) or {}
  if opts.json then
    print_json(result, words, judged, events)
  else
    print_result(result, events)
  end
  return result.outcome == "found" and 0 or 1
end
