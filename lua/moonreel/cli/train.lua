--- `moonreel train RECIPE [key=value ...]`: train, or continue a run.
-- @module moonreel.cli.train
local train = {
  name = "train",
  summary = "train a recipe, or continue a run",
  usage = "train RECIPE|RUN [key=value ...] [-n RANKS] [--hostfile FILE] "
    .. "[--load RUN[@STEP]|CKPT|latest]",
  overrides = true,
  short_fields = { n = "nproc_per_node" },
  options = {
    { "--stage NAME", "for a recipe with stages: begin with this one" },
    { "--include HOSTS", "with --hostfile: only these, as a,b or with slots a:0,2@b" },
    { "--exclude HOSTS", "with --hostfile: all but these" },
    { "--dump-steps LIST DIR", "write the data of these steps: inputs, noise, times, drops, "
      .. "losses, gradients, state, as safetensors in DIR/step-N/; LIST is 1,50. The run keeps the "
      .. "same bits", further = 1 },
  },
  fields = {
    { "RUN", "the directory of a run: continue from its newest checkpoint, like its recipe.lua "
      .. "with --load RUN" },
    { "--load RUN", "continue: weights, averages, optimizer, schedule, position; RUN@STEP, a "
      .. "checkpoint, or latest; fields of its command line apply again" },
    { "--start-from-scratch", "with --load: all but epoch, step and data position" },
    { "--ckpt-path PATH", "start from weights only" },
    { "key=value", "any field of the recipe, also as --key value; stages.NAME.key=value: for one "
      .. "stage" },
  },
  details = "SIGINT, SIGTERM or SIGHUP saves a checkpoint and exits with 130, 143 or 129; a second "
    .. "SIGINT or SIGTERM ends at once. Under nohup SIGHUP is ignored.\nThe run continues if the "
    .. "reader of its output ends.",
}

-- Libraries read env of the recipe when they are loaded. So the program starts over once, with
-- these variables set.
local function enter_environment(list, args)
  local process = require "moonreel.core.process"
  local wanted, missing = {}, {}
  for _, one in ipairs(list) do
    for name, value in pairs(one.settings:plain("env") or {}) do
      local other = wanted[name]
      if other and other.value ~= value then
        require("moonreel.recipe.fault").recipe(
          "stages %s and %s set env.%s to %q and %q, but one process trains both; try: env.%s in "
          .. "the outer recipe", other.stage, one.name, name,
            other.value, value, name)
      end
      wanted[name] = { value = value, stage = one.name }
      if not process.variable(name) then
        missing[name] = value
      end
    end
  end
  if next(missing) then
    process.restart({ "moonreel", "train", table.unpack(args) }, missing)
  end
end

-- Prints the notes of baking, each once even if several stages have it.
local function tell_notes(list)
  local reported = {}
  for _, one in ipairs(list) do
    for _, note in ipairs(one.settings.notes) do
      if not reported[note] then
        io.stderr:write("note: ", note, "\n")
      end
      reported[note] = true
    end
  end
end

-- The command that continues a run from its newest checkpoint; for a run without one, the command
-- that began it.
local function go_on(words, settings, dir)
  local run, ckpt = require "moonreel.run", require "moonreel.ckpt"
  local outer = dir and run.outer(dir) or dir
  if not outer or not (run.stages(outer) or #ckpt.steps(outer) > 0) then
    return words
  end
  local again = table.move(words, 1, #words, 1, {})
  for _, field in ipairs { "ckpt_path", "start_step", "start_epoch" } do
    again[#again + 1] = settings[field] and field .. "=none" or nil
  end
  again[#again + 1] = settings.start_from_scratch and "start_from_scratch=false" or nil
  again[#again + 1] = "load=" .. outer
  return again
end

-- The command that continues a run without some hosts, to copy and paste.
local function without(words, settings, excluded, hosts, dir)
  local again, out = go_on(words, settings, dir), { "moonreel" }
  local skip = false
  for _, word in ipairs(again) do
    -- hosts that were excluded before are listed again with the new ones
    skip = skip and "value" or word == "--exclude"
    if not skip and not word:match("^%-%-exclude=") then
      out[#out + 1] = word:match("^[%w_./:=,@%%+-]+$") and word
        or "'" .. word:gsub("'", "'\\''") .. "'"
    end
    skip = skip == true
  end
  out[#out + 1] = "--exclude " .. table.concat(hosts, ",") .. (excluded and "," .. excluded or "")
  return table.concat(out, " ")
end

-- Starts the ranks of a run on this host, if the recipe wants several and no launcher (mpirun,
-- srun, torchrun) has started them. Each rank runs this command again. `hash` is that of the
-- settings by the command line alone; a checkpoint may add values later.
local function launch_ranks(settings, hash, args, options)
  local place = require("moonreel.comm.place").find()
  -- a job of one task (mpirun -n 1, sbatch) may start several ranks
  local started = place.size > 1 or place.by == "moonreel -n"
  if started or not (settings.nproc_per_node > 1 or settings.hostfile) then
    return nil
  end
  settings:require_readers()
  local words = { "train", table.unpack(args) }
  local o = { watch = settings:plain("watch"), patience = settings.watch.patience,
    restarts = settings.restarts, restart_steps = settings.restart_steps,
    restart_pause = settings.restart_pause,
    again = function(dir) return go_on(words, settings, dir) end }
  if settings.hostfile then
    local set = not settings:origin("nproc_per_node"):match("^default")
    o.ranks, o.hostfile = set and settings.nproc_per_node or nil, settings.hostfile
    o.include, o.exclude, o.settings = options.include, options.exclude, hash
    o.without = function(names, dir)
      return without(words, settings, options.exclude, names, dir)
    end
    return require("moonreel.cluster.launch").run(words, o)
  end
  return require("moonreel.cli.ranks").launch(words, settings.nproc_per_node, o)
end

-- A launcher of several hosts sends the hash of its recipe. A file that differs on one host is
-- found before training begins.
local function expect_same_recipe(hash)
  local wanted = os.getenv "MOONREEL_SETTINGS"
  if wanted and wanted ~= hash then
    require("moonreel.core.base").raise("MR_E_RECIPE", ("host %s: the recipe has other values here "
      .. "(%s) than where the run was started (%s); try: the same files on all hosts"):format(
        os.getenv "MOONREEL_HOST", hash, wanted))
  end
end

-- Replaces the directory of a run by its own recipe, and continues the run unless the words say
-- otherwise. Other words stay unchanged.
local function of_run(args)
  local parsed = require("moonreel.settings.words").parse(args, train)
  local name = parsed.positional[1] or ""
  local dir = require("moonreel.runs.find").named(name)
  if not dir then
    return args, parsed
  end
  local recipe, words, from = dir .. "/recipe.lua", {}, false
  if not require("moonreel.core.base").exists(recipe) then
    require("moonreel.recipe.fault").usage("%s is a run without a recipe.lua; try: moonreel train "
      .. "RECIPE --load %s", dir, dir)
  end
  for i, word in ipairs(args) do
    words[i] = word == name and recipe or word
  end
  for _, one in ipairs(parsed.overrides) do
    local key = one.key:gsub("-", "_")
    from = from or key == "load" or key == "ckpt_path"
  end
  words[#words + 1] = not from and "load=" .. dir or nil
  return words, require("moonreel.settings.words").parse(words, train)
end

-- the watch that writes the steps of --dump-steps: for the named stage, or with nil for the whole
-- run
local function watch_of(asked, team)
  if not asked then
    return nil
  end
  local dump = require "moonreel.trainer.dump"
  local list, dir = asked:match "^(%S*) (.*)$"
  local steps = dump.parse(list)
  return function(stage)
    return dump.steps(steps, stage and dir .. "/" .. stage or dir, team)
  end
end

function train.run(args)
  require("moonreel.text.output").outlive()
  local parsed
  args, parsed = of_run(args)
  if #parsed.positional ~= 1 then
    require("moonreel.core.base").raise("MR_E_USAGE",
      ("train: expected one recipe or run, got %d; try: moonreel train tiny/demo; "
      .. "moonreel help recipes lists the recipes"):format(#parsed.positional))
  end
  local from = parsed.options.stage
  local launch = require("moonreel.trainer.launch").new(parsed.positional[1], parsed.overrides,
    train)
  local settings, hash = launch.settings, launch.hash
  require("moonreel.settings.uses").refuse(parsed.overrides, "train", launch.list)
  if from and not settings.stages then
    require("moonreel.recipe.fault").usage("--stage %s: the recipe has no stages", from)
  end
  enter_environment(launch.list, args)
  for _, one in ipairs(launch.list) do
    if settings.stages and one.settings.job ~= "train" then
      require("moonreel.settings.blame").raise(one.settings, "job", "MR_E_RECIPE",
        "stage %s: job = %s cannot be a stage of a training run; try: a recipe of its own for this "
        .. "job",
        one.name, one.settings.job)
    end
  end
  expect_same_recipe(hash)
  local code = settings.job == "train" and launch_ranks(settings, hash, args, parsed.options)
  if code then
    return code
  end
  local place = require "moonreel.comm.place"
  local here = place.find()
  require("moonreel.life.watcher").begin(here, place.job(here), settings)
  local team = require("moonreel.comm.team").new(require("moonreel.comm").world())
  launch:agree(team)
  settings = launch.settings
  if team.leads then
    io.stderr:write(launch.note and launch.note .. "\n" or "")
    tell_notes(launch.list)
  end
  local o = { team = team, launch = launch, watch = watch_of(parsed.options.dump_steps, team),
    evaluate = function(...) return require("moonreel.job.eval_loss").measure(...) end }
  if settings.stages then
    o.from = from
    return require("moonreel.trainer.stages").run(settings, launch.list, o)
  end
  if settings.job ~= "train" then
    return (require("moonreel.job").run(settings))
  end
  o.watch = o.watch and o.watch()
  return (require("moonreel.trainer").run(settings, o))
end

return train
