--- Trains recipes one after another: outputs/NNN-name/stages/NAME/ is the run of each stage. Ref:
-- recipes.md 8. The state of the series is read from the disk alone. A stage begins when the one
-- before it has ended, so the newest stage with a checkpoint is the one to continue, even if it has
-- nothing left to do. All stages before it have ended; no stage after it has begun.
-- @module moonreel.trainer.stages
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local ckpt = require "moonreel.ckpt"
local options = require "moonreel.text.options"
local progress = require "moonreel.trainer.progress"
local run = require "moonreel.run"
local check = require "moonreel.trainer.check"
local rehearse = require "moonreel.trainer.rehearse"
local signal = require "moonreel.core.signal"
local team = require "moonreel.comm.team"
local trainer = require "moonreel.trainer"

local stages = {}

-- the run that `load` names; nil: a new run
local function find_outer(series)
  local s = series.settings
  if not s.load then
    return nil
  end
  if s.start_from_scratch or s.start_step or s.start_epoch then
    base.raise("MR_E_USAGE", "load: a run with stages continues where it was; "
      .. "--start-from-scratch, --start-step and --start-epoch are for "
      .. "one stage; try: stages.NAME.start_from_scratch=true")
  end
  local found, reason = blame.field(s, "load", ckpt.resolve, s.load, s.outputs, check.name(s))
  if not found then
    series.progress:say(reason)
    return nil
  end
  local outer, name = run.outer(found.run or "")
  if not outer then
    base.raise("MR_E_USAGE",
      ("load: %s is not a run with stages; try: stages.NAME.load=%s"):format(found.run
        or found.spec,
      found.spec))
  end
  if not found.continues or found.run ~= ckpt.resolve(outer).run then
    base.raise("MR_E_USAGE", ("load: %s is not the newest checkpoint of %s; try: --load %s, or "
      .. "--stage %s stages.%s.load=%s for a new run")
      :format(found.candidates[1], outer, outer, name, name, found.candidates[1]))
  end
  return outer
end

-- the number of the first stage: the requested one, the newest with a checkpoint, or the first
local function find_first(series)
  local wanted, newest = nil, nil
  local number = {}
  for i, one in ipairs(series.list) do
    number[one.name] = i
    if one.name == series.from then
      wanted = i
    end
  end
  for _, begun in ipairs(series.outer and run.stages(series.outer) or {}) do
    if not number[begun.name] then
      base.raise("MR_E_RECIPE", ("%s: the recipe has no stage '%s' any more; try: its old name, or "
        .. "a new run"):format(begun.path,
        begun.name))
    end
    if #ckpt.steps(begun.path) > 0 then
      newest = math.max(newest or 0, number[begun.name])
    end
  end
  if series.from and not wanted then
    local names = {}
    for i, one in ipairs(series.list) do
      names[i] = one.name
    end
    base.raise("MR_E_USAGE", ("--stage %s: there is no such stage; expected one of %s"):format(
      series.from,
      table.concat(names, ", ")))
  end
  if wanted and newest and wanted < newest then
    base.raise("MR_E_USAGE", ("--stage %s: %s has already begun '%s'; try: --load without "
      .. "--stage, or a new run without --load"):format(
      series.from, series.outer, series.list[newest].name))
  end
  return wanted or newest or 1
end

-- what trainer.run needs to know about a stage at this moment
local function stage_of(series, i)
  local function dir(k)
    local one = series.outer and series.list[k]
    return one and ("%s/stages/%s"):format(series.outer, one.name)
  end
  local function newest(k)
    local step = dir(k) and ckpt.steps(dir(k))[1]
    return step and ckpt.dir(dir(k), step)
  end
  local stage = {outer = series.outer, name = series.list[i].name, dir = dir(i),
    previous = newest(i - 1)}
  stage.begun = newest(i) ~= nil
  return stage
end

-- a command-line value for all stages would silently break the chain
local function check_weights(series)
  local chain = series.settings:chain("ckpt_path")
  local last = chain[#chain]
  if last and last.command_line then
    base.raise("MR_E_USAGE", ("%s: every stage would start from these weights; try: "
      .. "stages.%s.ckpt_path=%s"):format(
      last.at, series.list[1].name, series.settings.ckpt_path or "none"))
  end
end

-- calls f; an error that it raises names the stage
local function named(name, f, ...)
  local ok, result = xpcall(f, function(problem)
    local text = ("stage %s: %s"):format(name, type(problem) == "table" and problem.message
      or tostring(problem))
    if type(problem) ~= "table" then
      return debug.traceback(text, 2)
    end
    problem.message = text
    return problem
  end, ...)
  if not ok then
    error(result, 0)
  end
  return result
end

-- prints which stage it is, and trains it
local function train(series, i)
  local one, stage = series.list[i], stage_of(series, i)
  local s = one.settings
  local follows = s.load == "recipe.previous" or s.ckpt_path == "recipe.previous"
  series.progress:say(("stage %s (%d of %d): %s"):format(one.name, i, #series.list,
    stage.begun and "continues in " .. stage.dir
    or follows and stage.previous and "follows " .. stage.previous
    or "begins in " .. stage.dir))
  return named(one.name, trainer.run, one.settings, {write = series.write, stage = stage,
    team = series.team, launch = series.launch, evaluate = series.evaluate,
    watch = series.watch and series.watch(one.name) or nil})
end

local Series = {}

function Series:__close()
  if self.catches then
    signal.release()
  end
  self.progress:close()
  if self.lock then
    self.lock:close()
  end
  -- as for a run that fails before its first step
  if self.made and #base.list_dir(self.outer .. "/stages") == 0 then
    run.discard(self.outer, self.made)
  end
end

-- Finds the run, checks the stages to come, and locks the run. Returns what the other ranks need to
-- know.
local function begin(series)
  local settings, list = series.settings, series.list
  check_weights(series)
  series.outer = find_outer(series)
  series.lock = series.outer and run.lock(series.outer)
  local first = find_first(series)
  for i = first, #list do
    local stage = stage_of(series, i)
    if i > first then
      stage.previous, stage.before = true, list[i - 1].settings
    end
    named(list[i].name, rehearse, list[i].settings, stage)
  end
  if not series.outer then
    series.outer, series.made = blame.field(settings, "outputs", run.create, settings.outputs,
      check.name(settings), true)
    series.lock = run.lock(series.outer)
  end
  base.replace_file(series.outer .. "/settings.json", settings:to_json())
  return {outer = series.outer, first = first}
end

local read_options = options.declare("stages.run", {
  { "from", "text", "name of the stage to begin with" },
  { "write", "function", "takes each line of the log instead of standard output" },
  { "team", "mr.Team", "the ranks of the run; absent: this process alone" },
  { "launch", "mr.Launch", "the launch whose parts are in the list, as trainer.run takes it" },
  { "watch", "function", "(name of a stage): what trainer.run takes as watch" },
  { "evaluate", "function", "as trainer.run takes it" },
})

--- Trains stages one after another.
---@param settings table  of the outer recipe
---@param list table[]    {name, settings} of each stage
---@param given table|nil    from: name of the first stage; write: takes each line of the log
---   instead of standard output; team: the ranks of the run, each of which calls this; launch: as
---   trainer.run takes it
---@return integer exit code
function stages.run(settings, list, given)
  local o = read_options(given)
  local series <close> = setmetatable({settings = settings, list = list, from = o.from,
    write = o.write, launch = o.launch, watch = o.watch, evaluate = o.evaluate,
    team = o.team or team.new(),
    progress = progress.new(0, 1, o.write), catches = signal.catch()}, Series)
  series.progress:date()
  -- the first rank decides and makes the directory, and is the only one to lock it
  local begun = series.team:first(function() return begin(series) end)
  series.outer = begun.outer
  if not series.team.leads then
    series.progress = progress.new(0, 1, function() end)
  else
    series.progress:keep_in(series.outer .. "/log/rank-0.log")
  end
  for i = begun.first, #list do
    local code = train(series, i)
    -- a stop request that came too late for the stage's own loop
    local stop = signal.pending()
    if code == 0 and stop then
      code = 128 + stop
    end
    if code ~= 0 then
      return code
    end
    collectgarbage()
  end
  return 0
end

return stages
