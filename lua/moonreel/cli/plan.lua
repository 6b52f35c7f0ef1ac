--- `moonreel plan`: predicts memory, time and cost of a run; compares cost models with published
-- runs.
-- @module moonreel.cli.plan
local command = {
  name = "plan",
  summary = "predict memory, time and cost of a run: bytes by kind, seconds by part, steps and "
    .. "cost",
  usage = "plan RECIPE|RUN [key=value ...] [--gpus 24x8xH100] [--machine NAME] [--data NAME.mrx] "
    .. "[--stage NAME] [--fit MEMORY] [--balance] [--solve mesh] [--why] "
    .. "[--schedule] [--copies] [--trace FILE] [--html FILE] [--stalls SHARExS] [--json] "
    .. "| plan --check [RECIPE ...] | plan --published",
  overrides = true,
  options = {
    { "--gpus N", "GPUs and machine: NODESxGPUSxMACHINE, GPUSxMACHINE, or a number of GPUs" },
    { "--machine NAME", "H100, H200, A100, B200, or a file: ./mine.lua; default: this machine" },
    { "--data NAME.mrx", "the index, for samples per bucket and epoch (default: dataset.data_path, "
      .. "if it exists)" },
    { "--stage NAME", "one stage of a recipe with stages" },
    { "--json", "print one JSON object; docs/plan_json.md describes its fields" },
    { "--fit MEMORY", "find the largest batch of each bucket for this memory: 80GiB, 80GB, or all "
      .. "(the machine's memory)" },
    { "--balance", "find batches of equal seconds, within --fit or the machine's memory" },
    { "--solve WHAT", "mesh: the fastest way to shard, share tokens and recompute that fits" },
    { "--why", "what the step of the slowest bucket waits for, and the load of its streams" },
    { "--schedule", "time line of that step and its waits: gathers, reductions" },
    { "--copies", "inputs of blocks that this step keeps in host memory, when they are copied "
      .. "there and back, and which block waits for one" },
    { "--trace FILE", "the steps of all buckets as a Chrome trace, a row per stream" },
    { "--html FILE", "write a page for a browser: memory over the step, buckets, time line" },
    { "--stalls SHARExS", "assume late data: this share of a rank's steps waits s seconds: "
      .. "0.001x2" },
    { "--check", "check whether these recipes, or all that ship, fit on each of --gpus 1,8,192; "
      .. "exit 5 if not" },
    { "--published", "compare published runs and closed forms with our models and graphs, with "
      .. "margin and source" },
  },
  questions = {
    { "published", "json" },
    { "check", "gpus machine json" },
    { "solve", "gpus machine stage json" },
    { "balance", "gpus machine stage json fit" },
    { "fit", "gpus machine stage json" },
    { "why", "gpus machine stage data stalls trace html" },
  },
  details = "Exit 5 if a bucket does not fit, or a published value is outside its margin.",
}

-- ---- published runs ----

local TABLES = {
  { "runs", "published runs" },
  { "forms", "graphs compared with closed forms of their models" },
  { "goals", "not reproduced: what the machines could do by our rates" },
}

local function print_published(options)
  local printer = require "moonreel.text.table"
  local function number(value) return ("%.4g"):format(value) end
  local columns = {
    { key = "run" }, { key = "what" },
    { key = "published", right = true, format = number },
    { key = "planned", right = true, format = number },
    { key = "low", title = "from", right = true, format = number },
    { key = "high", title = "to", right = true, format = number },
    { key = "reproduced" },
  }
  local rows, formulas = require("moonreel.plan.published").rows(),
    require("moonreel.bench.formulas").rows()
  table.move(formulas, 1, #formulas, #rows + 1, rows)
  local outside, sources, by = 0, {}, {}
  for _, row in ipairs(rows) do
    outside = outside + (row.ok and 0 or 1)
    if not sources[row.source] then
      sources[row.source], sources[#sources + 1] = true, row.source
    end
    by[row.table] = by[row.table] or {}
    table.insert(by[row.table], row)
  end
  if options.json then
    table.move({ { key = "ok" }, { key = "table" }, { key = "source" }, { key = "note" } }, 1, 4,
      #columns + 1, columns)
    printer.print(columns, rows, options)
    return outside > 0 and 5 or 0
  end
  for _, one in ipairs(TABLES) do
    print(one[2] .. ":\n")
    printer.print(columns, by[one[1]], options)
    print()
  end
  for _, row in ipairs(rows) do
    if row.note then
      print(("%s, %s: %s"):format(row.run, row.what, row.note))
    end
  end
  print("sources: " .. table.concat(sources, "; "))
  return outside > 0 and 5 or 0
end

-- ---- recipes and runs ----

-- the stages of a run, or the selected one: {name, settings, dir: with its journal}
local function stages_of_run(target, stage)
  local fault, settings = require "moonreel.recipe.fault", require "moonreel.settings"
  local list, names = {}, {}
  for _, one in ipairs(require("moonreel.run").stages(target) or {}) do
    names[#names + 1] = one.name
    if not stage or one.name == stage then
      list[#list + 1] = { name = one.name, dir = one.path,
        settings = settings.load(one.path .. "/settings.json") }
    end
  end
  if stage and #list == 0 then
    fault.usage("plan: --stage %s: %s", stage, #names > 0 and "stages of the run that have begun: "
      .. table.concat(names, ", ") or "the run has no stages")
  end
  return #list > 0 and list or { { dir = target,
    settings = settings.load(target .. "/settings.json") } }
end

-- the settings of a recipe or run, of one of its stages, or of all stages: {name, settings, dir}
local function settings_of(parsed)
  local base, settings = require "moonreel.core.base", require "moonreel.settings"
  local target, stage = parsed.positional[1], parsed.options.stage
  target = require("moonreel.runs.find").named(target) or target
  if base.exists(target .. "/settings.json") then
    if #parsed.overrides > 0 then
      require("moonreel.recipe.fault").usage("plan: %s is a run, which is planned with its own "
        .. "settings; try: leave out key=value, or plan its recipe", target)
    end
    return stages_of_run(target, stage)
  end
  local outer = settings.bake(target, parsed.overrides, { stage = stage,
    may_be = require("moonreel.cli.target").may_be(target) })
  local list = { { settings = outer } }
  for i, one in ipairs(not stage and outer.stages or {}) do
    list[i] = { name = one.name,
      settings = settings.bake(target, parsed.overrides, { stage = one.name }) }
  end
  require("moonreel.settings.uses").refuse(parsed.overrides, "plan", list)
  return list
end

-- What the journal of a run, or of one of its stages, says about its machine and the time of its
-- steps; nil without a journal. A long journal takes seconds, so it is read once.
local function journal_of(one)
  local there = one.dir and require("moonreel.core.base").exists(one.dir .. "/journal.jsonl")
  if there and not one.measured then
    require("moonreel.runs.damage").say { one }
    one.measured, one.facts = require("moonreel.trainer.measured").of_run(one.dir)
  end
  return one.measured, one.facts
end

-- what the journal of a run, or of its first stage, says about the machine
local function facts_of(list)
  return select(2, journal_of(list[1])) or {}
end

-- The requested GPUs, or this machine. Ranks and threads are those of the run, or those of the
-- recipe.
local function mesh_of(options, facts, settings)
  local mesh = require "moonreel.plan.mesh"
  if options.gpus or options.machine then
    return mesh.parse(options.gpus or "1", options.machine)
  end
  local device = require("moonreel.core.exec").device("cpu", facts.threads
    or settings.threads)
  return mesh.new(require("moonreel.plan.machine").this(device), facts.ranks)
end

local EPOCHS = 10  -- these are counted one by one; later ones hardly differ

-- jobs that take all samples of an index, also those that dataset.hold_back excludes from training
local TAKE_ALL <const> = { extract = true, reconstruct = true }

-- Opens the sources of a recipe, or the index of --data; nil if one of them does not exist.
local function open_sources(settings, options, kept)
  local base, sources = require "moonreel.core.base", require "moonreel.settings.sources"
  local list = options.data and { sources.single(settings, options.data) }
    or sources.of(settings)
  for _, source in ipairs(list) do
    local index, input = require("moonreel.trainer.samples").index_of(source.path)
    if not options.data and (input or not base.exists(index)) then
      return nil
    elseif input then
      require("moonreel.recipe.fault").usage("--data '%s': no index '%s'; try: moonreel data "
        .. "ingest DIR|CSV -o NAME.mrx", source.path, index)
    end
    source.index = require("moonreel.data").open(index)
    kept[#kept + 1] = source.index
    -- an evaluation measures what training leaves out
    source.held = settings.job == "eval_loss"
    if not TAKE_ALL[settings.job] then
      require("moonreel.data.place").pick(source)
    end
  end
  return list[1] and list
end

-- Counts the samples of the first epochs, by bucket and drop; nil without an index.
local function surveys_of(settings, options)
  local kept <close> = setmetatable({}, { __close = function(all)
    for _, index in ipairs(all) do
      index:close()
    end
  end })
  local list = open_sources(settings, options, kept)
  if not list then
    return nil
  end
  local surveys, passes = {}, settings.job == "reconstruct" and 1 or settings.epochs
  for epoch = 1, math.max(1, math.min(EPOCHS, passes)) do
    local each = {}
    for i, source in ipairs(list) do
      each[i] = require("moonreel.plan").survey(settings, source.index, epoch - 1, source.members)
    end
    surveys[epoch] = #each == 1 and each[1]
      or require("moonreel.settings.sources").together(list, each)
  end
  return surveys
end

-- parses --stalls: share of steps, seconds
local function stalls_of(text)
  local share, seconds = (text or "0x0"):match("^([%d.]+)x([%d.]+)$")
  share, seconds = tonumber(share), tonumber(seconds)
  if not (share and seconds and share <= 1) then
    require("moonreel.recipe.fault").usage("plan: --stalls %s: expected a share of steps and "
      .. "seconds, such as 0.001x2", text)
  end
  return share, seconds
end

-- ---- solving ----

-- Parses a size like 80GiB, or "all" for the machine's memory. Returns at most the memory of the
-- machine, and second the requested size if that is larger.
local function memory_of(text, m)
  local count, unit = (text or "all"):match("^([%d.]+)%s*([GMT]i?)B?$")
  local units = { G = 1e9, Gi = 2 ^ 30, M = 1e6, Mi = 2 ^ 20, T = 1e12, Ti = 2 ^ 40 }
  if (tonumber(count) or 0) > 0 then
    local asked = tonumber(count) * units[unit]
    return math.min(asked, m.memory_bytes), asked > m.memory_bytes and asked or nil
  elseif text == nil or text == "all" then
    return m.memory_bytes
  end
  require("moonreel.recipe.fault").usage("plan: --fit '%s': expected a size above zero like 80GiB "
    .. "or 40GB, or all; try: --fit all", text)
end

-- refuses more than one stage; returns the stage, or the recipe without stages
local function one_of(parsed, list)
  if #list > 1 then
    local names = {}
    for i, one in ipairs(list) do
      names[i] = one.name
    end
    require("moonreel.recipe.fault").usage("plan: %s has stages, and --solve and --fit take one "
      .. "stage at a time; try: --stage %s", parsed.positional[1],
      table.concat(names, ", --stage "))
  end
  return list[1].settings
end

-- Bakes one of the list again with more values from the command line; a run needs its recipe for
-- that.
local function bakes(parsed, one)
  local target = one.dir and one.dir .. "/recipe.lua" or parsed.positional[1]
  local stage = not one.dir and (one.name or parsed.options.stage) or nil
  return function(values)
    local all = table.move(parsed.overrides, 1, #parsed.overrides, 1, {})
    return require("moonreel.settings").bake(target,
      table.move(values, 1, #values, #all + 1, all), { stage = stage })
  end
end

-- refuses questions about a job whose answers would change nothing
local function refuse_job(job, options, target)
  local fault = require "moonreel.recipe.fault"
  if options.solve and job ~= "train" and job ~= "batch_search" then
    fault.usage("plan: --solve chooses how ranks share the training of a model, but job = %s does "
      .. "not train; try: moonreel plan %s", job, target)
  elseif job == "extract" or job == "reconstruct" then
    fault.usage("plan: --fit and --balance choose batches, but job = %s encodes clips one by one, "
      .. "so they change neither its memory nor its time; try: moonreel plan %s", job, target)
  end
end

local function solve(parsed, list, mesh, compiled)
  local options, plan = parsed.options, require "moonreel.plan"
  local settings = one_of(parsed, list)
  refuse_job(settings.job, options, parsed.positional[1])
  local show, given = require "moonreel.plan.show_solved", { mesh = mesh, compiled = compiled }
  if options.solve then
    if options.solve ~= "mesh" then
      require("moonreel.recipe.fault").usage("plan: --solve: expected mesh, got '%s'",
        options.solve)
    end
    return show.mesh(require("moonreel.plan.search").mesh(given, bakes(parsed, list[1])), mesh,
      options)
  end
  local open = plan.open(settings, given)
  local memory, asked = memory_of(options.fit, mesh.machine)
  if asked then
    local size = require("moonreel.text.listing").size
    io.stderr:write((
      "note: %s has %s, less than the %s of --fit; solved for the smaller size\n"):format(
      mesh.machine.name, size(memory), size(asked)))
  end
  return show[options.balance and "balance" or "fit"](open, memory, options,
    bakes(parsed, list[1]))
end

-- meshes of --gpus 1,8,192
local function meshes_of(options)
  local list = {}
  for text in ((options.gpus or "8") .. ","):gmatch("([^,]*),") do
    list[#list + 1] = require("moonreel.plan.mesh").parse(text, options.machine)
  end
  return list
end

-- The plan of a run, with rates from the time of its steps if it ran on this machine. For another
-- machine the measured times are shown next to the plan.
local function by_run(p, settings, given, measured, facts)
  local calibrate = require "moonreel.plan.calibrate"
  local rows = measured:rows()
  p.busy = facts.busy
  if not (given.mesh.machine.here and facts.device == "cpu") then
    rows.elsewhere, p.measured = true, rows
    return p
  end
  local factor, mesh = calibrate.factor(p, rows), given.mesh:with {}
  calibrate.as_run(mesh, factor, facts.began)
  local compiled <close> = require("moonreel.plan.compiled").new(mesh.machine)
  p = require("moonreel.plan").of(settings, { compiled = compiled, mesh = mesh,
    survey = given.survey })
  calibrate.compare(p, rows)
  p.measured, p.resident_bytes, p.calibrated, p.busy = rows, facts.resident, factor, facts.busy
  if p.renders then
    p.renders.seconds = require("moonreel.plan.renders").measured(facts, p.renders.on)
      or p.renders.seconds
  end
  return p
end

local function write_trace(path, p)
  local steps = {}
  for i, b in ipairs(p.buckets) do
    steps[i] = { name = ("%s, batch %d"):format(require("moonreel.plan").bucket_name(b), b.batch),
      how = b.schedule }
  end
  -- the longest micro-step again, while a checkpoint is written
  local slowest = p.slowest
  if not (p.mesh.machine.cpu or p.job) then
    local save = require("moonreel.plan.course").save(p)
    steps[#steps + 1] = { name = require("moonreel.plan").bucket_name(slowest) .. ", saving",
      how = require("moonreel.plan.schedule").saving(p.mesh, slowest.schedule, save) }
  end
  require("moonreel.core.base").replace_file(path,
    require("moonreel.plan.timeline").trace(steps))
end

function command.run(args)
  local fault = require "moonreel.recipe.fault"
  local parsed = require("moonreel.settings.words").parse(args, command)
  local options = parsed.options
  if options.published then
    if #parsed.positional > 0 then
      fault.usage("plan: --published plans the published runs and takes no recipe; got '%s'",
        parsed.positional[1])
    end
    return print_published(options)
  elseif options.check then
    local rows = require("moonreel.plan.check").rows(parsed.positional, meshes_of(options),
      parsed.overrides)
    return require("moonreel.plan.show_solved").check(rows, options, #parsed.positional > 0)
  elseif #parsed.positional ~= 1 then
    fault.usage("plan: expected one recipe or run, got %d; try: moonreel plan RECIPE",
      #parsed.positional)
  end
  local _ <close> = require("moonreel.plan.compiled").by_generations()
  local plan, show = require "moonreel.plan", require "moonreel.plan.show"
  local list = settings_of(parsed)
  local mesh = mesh_of(options, facts_of(list), list[1].settings)
  local compiled <close> = require("moonreel.plan.compiled").new(mesh.machine)
  if options.fit or options.balance or options.solve then
    return solve(parsed, list, mesh, compiled)
  end
  if options.why or options.schedule or options.copies or options.trace then
    one_of(parsed, list)
  end
  local plans, fits = {}, true
  for i, one in ipairs(list) do
    local surveys = one.settings.bucket_config and surveys_of(one.settings, options) or nil
    local given = { mesh = mesh, compiled = compiled, survey = surveys and surveys[1] }
    local p = plan.of(one.settings, given)
    local measured, facts = journal_of(one)
    if measured then
      p = by_run(p, one.settings, given, measured, facts)
    elseif not p.largest.fits then
      p.remedies = require("moonreel.plan.solve").remedies(p, given,
        bakes(parsed, one))
    end
    p.stage = one.name or options.stage
    local share, seconds = stalls_of(options.stalls)
    p.course = require("moonreel.plan.course").of(p, one.settings, { surveys = surveys,
      stage = p.stage, stall_share = share, stall_s = seconds })
    plans[i], fits = p, fits and p.largest.fits
  end
  if options.html then
    require("moonreel.core.base").replace_file(options.html,
      require("moonreel.plan.page").html(plans))
  end
  if options.trace then
    write_trace(options.trace, plans[1])
  end
  if options.schedule then
    show.schedule(plans[1], plans[1].slowest, options)
  elseif options.copies then
    show.copies(plans[1], plans[1].slowest, options)
  elseif options.json then
    local json = require "moonreel.core.json"
    local out = json.array()
    for i, p in ipairs(plans) do
      out[i] = show.plain(p)
    end
    print(json.encode(#out == 1 and out[1] or { stages = out }, { indent = 2 }))
  elseif #plans > 1 then
    io.write(show.stages(plans))
  elseif options.why then
    io.write(show.why(plans[1], plans[1].slowest))
  else
    io.write(show.text(plans[1]))
  end
  return fits and 0 or 5
end

return command
