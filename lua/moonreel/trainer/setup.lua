--- Opening a run: what it starts from, its directory, device, models and state.
-- Each function is one named step of the trainer and takes the run `r`.
-- @module moonreel.trainer.setup
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local cadence = require "moonreel.trainer.cadence"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local conditions = require "moonreel.trainer.conditions"
local embed = require "moonreel.embed"
local data = require "moonreel.data"
local feed = require "moonreel.trainer.feed"
local fill = require "moonreel.ckpt.fill"
local gpu = require "moonreel.trainer.gpu"
local samples = require "moonreel.trainer.samples"
local json = require "moonreel.core.json"
local lengths = require "moonreel.codec.lengths"
local life = require "moonreel.core.life"
local mesh = require "moonreel.comm.mesh"
local regions = require "moonreel.optim.regions"
local pipeline = require "moonreel.models.pipeline"
local comm_place = require "moonreel.comm.place"
local place = require "moonreel.data.place"
local process = require "moonreel.core.process"
local progress = require "moonreel.trainer.progress"
local optim = require "moonreel.optim"
local ranks = require "moonreel.optim.ranks"
local renderings = require "moonreel.trainer.renderings"
local run = require "moonreel.run"
local schedule = require "moonreel.optim.schedule"
local sources = require "moonreel.settings.sources"
local start = require "moonreel.ckpt.start"
local state = require "moonreel.trainer.state"
local statistics = require "moonreel.trainer.statistics"
local team = require "moonreel.comm.team"

local setup = {}

-- the rate from which Open-Sora 2.0 warms up
local FIRST_LR_20 <const> = 1e-6

--- The name of a run: its field, else the recipe's file.
---@param s table  settings
---@return string
function setup.name(s)
  local name = s.name or tostring(s.recipe):match("([^/]+)$"):gsub("%.lua$", "")
  return (name:gsub("[^%w%._%-]", "-"))
end

-- files that differ on one host, or other words, are found before anything runs
local function expect_same_recipe(r)
  r.team:same(r.settings.hash, function(theirs)
    base.raise("MR_E_RECIPE", ("the recipe has other values here (%s) than on rank 0 (%s); try: "
      .. "the same files and words on all hosts"):format(r.settings.hash, theirs))
  end)
end

-- what ranks other than the first say and write
local silent = {append = function() end, sync = function() end, close = function() end,
  waiting = function() return 0, "", 0 end}

--- Refuse a training that nothing ends.
---@param s table  settings
function setup.check_end(s)
  if s.steps == 0 and s.epochs == 0 then
    blame.raise(s, "epochs", "MR_E_RECIPE", "epochs = 0 and steps = 0: nothing says when to stop; "
      .. "try: epochs = 1, or steps = 1000")
  end
end

--- Refuse settings that nothing reads.
function setup.check(r)
  local s = r.settings
  r.progress = progress.new(s.steps, s.log_every, r.team.leads and r.write or not r.team.leads
    and silent.append or nil)
  r.name = setup.name(s)
  expect_same_recipe(r)
  s:require_readers()
  if s.stages then
    base.raise("MR_E_USAGE", "a recipe of stages trains by moonreel.trainer.stages; try: moonreel "
      .. "train, or bake one of them")
  end
  local function refuse(path, form, ...) blame.raise(s, path, "MR_E_RECIPE", form, ...) end
  if not pipeline.reconstructs(s) and not (s.vae.type and s.text_encoder.type) then
    refuse(s.vae.type and "text_encoder.type" or "vae.type",
      "training needs vae.type and text_encoder.type; "
      .. "try: vae = { type = \"dct\" }, text_encoder = { type = \"bytes\" }")
  end
  if #sources.of(s) == 0 then
    refuse("dataset.data_path", "dataset.data_path is none; try: --data-path NAME.mrx")
  end
  if not s.bucket_config then
    refuse("bucket_config", "bucket_config is none: nothing says which clips to take; try: "
      .. "bucket_config = { [\"240p\"] = { [16] = { 1.0, 4 } } }")
  end
  local unknown = require "moonreel.settings.resolutions"(s:leaves())[1]
  if unknown then
    refuse(unknown.path, "%s", unknown.text)
  end
  setup.check_end(s)
  if s.spike.action == "rollback" and s.ckpt_every == 0 then
    refuse("spike.action", "spike.action = \"rollback\" with ckpt_every = 0: there is nothing to "
      .. "go back to; try: ckpt_every = %d, or spike.action = \"skip\"",
      math.max(1, s.spike.back_steps // 2))
  end
  if s.lr_schedule == "1cycle" and not (s.min_lr and s.max_lr) then
    refuse("lr_schedule", "lr_schedule = \"1cycle\" needs min_lr and max_lr, %s is none; "
      .. "try: min_lr = 1e-5, max_lr = 1e-4", s.min_lr and "max_lr" or "min_lr")
  end
end

-- what `load` or `ckpt_path` names; recipe.previous is the newest checkpoint of the stage before
local function source_of(r, field)
  local spec = r.settings
  for key in field:gmatch("[^.]+") do
    spec = spec[key]
  end
  if spec ~= "recipe.previous" then
    return spec
  end
  if r.stage and r.stage.previous then
    return r.stage.previous
  end
  base.raise("MR_E_USAGE", ("%s: %s = recipe.previous: there is no checkpoint of a stage before "
    .. "this one; "
    .. "try: --load RUN, or another %s"):format(r.settings:origin(field), field, field))
end

-- without epoch, step and position in the data of what is loaded
local function starts_from_scratch(s)
  return s.start_from_scratch or (s.start_step == 0 and s.start_epoch == 0)
end

-- these say what of a whole state is left behind
local function expect_load(s)
  for _, field in ipairs{"start_from_scratch", "start_step", "start_epoch"} do
    if s[field] then
      blame.raise(s, field, "MR_E_USAGE", "%s = %s goes with load, and load is none: %s; try: "
        .. "--load RUN, or leave it out", field, s[field], s.ckpt_path
        and "ckpt_path takes weights alone, and begins with the data" or "a new run begins with "
        .. "step 0 and its data in any case")
    end
  end
end

--- Find what the run starts from: nothing, weights alone, or a whole state.
function setup.find(r)
  local s = r.settings
  -- a stage that has a checkpoint goes on from it, however it began
  if r.stage and r.stage.begun then
    r.found = ckpt.resolve(r.stage.dir)
    return
  end
  local load, weights = source_of(r, "load"), source_of(r, "ckpt_path")
  if load and weights then
    base.raise("MR_E_USAGE", "load and ckpt_path are both set; load takes everything, ckpt_path "
      .. "weights alone")
  end
  if not load then
    expect_load(s)
  end
  r.scratch = starts_from_scratch(s)
  if not r.scratch and (s.start_step or s.start_epoch) then
    base.raise("MR_E_USAGE", "start_step and start_epoch can only both be 0; try: "
      .. "--start-from-scratch")
  end
  if load then
    local found, reason = blame.field(s, "load", ckpt.resolve, load, s.outputs, r.name)
    if found then
      r.found = found
    else
      r.notes[#r.notes + 1] = reason
    end
  elseif weights then
    r.found_weights = blame.field(s, "ckpt_path", ckpt.resolve, weights, s.outputs, r.name)
  end
end

-- the directory of a fresh run: the next number, or the stage's own, which a killed launch may have
-- left without a checkpoint
local function fresh_directory(r)
  local s = r.settings
  if not r.stage then
    return blame.field(s, "outputs", run.create, s.outputs, r.name), true
  end
  local made = not base.exists(r.stage.dir)
  local dir = run.stage(r.stage.outer, r.stage.name)
  os.remove(dir .. "/quarantine.jsonl")
  return dir, made
end

local function write_settings(r)
  base.replace_file(r.dir .. "/recipe.lua", r.settings:to_recipe())
  base.replace_file(r.dir .. "/settings.json", r.settings:to_json())
end

-- the directory, locked, with recipe and settings in it
local function take_directory(r)
  local found = r.found
  -- a stage goes on in its own directory alone, and nobody else does
  r.continues = found ~= nil and found.continues and not r.scratch and found.run ~= nil
    and (r.stage and found.run == r.stage.dir or not r.stage and not run.outer(found.run))
  if r.continues then
    r.dir = found.run
  else
    r.dir, r.made = fresh_directory(r)
    write_settings(r)
  end
  r.lock = r:keep(run.lock(r.dir))
  r.journal = r:keep(run.journal(r.dir))
  return {dir = r.dir, continues = r.continues, fence = r.lock:fence(), id = r.lock:id()}
end

--- Take or make the run directory and become its one writer: the first rank does.
function setup.directory(r)
  local taken = r.team:first(function() return take_directory(r) end)
  r.dir, r.continues, r.fence = taken.dir, taken.continues, taken.fence
  life.set_run(taken.id, process.real_path(taken.dir), taken.fence)
  r.journal = r.journal or silent
end

-- what is loaded, verified by the first rank, which may set damaged checkpoints of our own
-- directory aside; the others open the same one, and every part of it is verified as it is read
local function open_source(r, found)
  local source, notes
  local path = r.team:first(function()
    source, notes = ckpt.load(found, r.continues and r.lock or nil)
    return {source.path}
  end)[1]
  return source or ckpt.open(path), notes or {}
end

-- the checkpoint that is continued may be older than the one whose values the launch took
local function take_values(r)
  local goes_on = r.found and r.launch and (not r.stage or r.stage.begun)
  local note = goes_on and r.launch:take(r.source)
  if not note then
    return
  end
  r.settings = r.launch:part(r.stage and r.stage.name)
  setup.check(r)
  r.notes[#r.notes + 1] = note
  if r.team.leads and not r.continues then
    write_settings(r)
  end
  if r.team.leads and r.stage then
    base.replace_file(r.stage.outer .. "/settings.json", r.launch.settings:to_json())
  end
end

--- Open what is loaded, now that damaged checkpoints of our own directory may be set aside.
function setup.source(r)
  local found = r.found or r.found_weights
  if not found then
    return
  end
  local source, notes = blame.field(r.settings, r.found and "load" or "ckpt_path", open_source, r,
    found)
  r.source = r:keep(source)
  for _, note in ipairs(notes) do
    r.notes[#r.notes + 1] = note
  end
  if r.found and not source.manifest then
    base.raise("MR_E_USAGE",
      ("%s: these are weights alone; try: --ckpt-path %s"):format(source.path, source.path))
  end
  take_values(r)
end

-- tell what differs from the settings that made a checkpoint; refuse what cannot go on
local function compare_settings(r, text)
  local then_settings = require("moonreel.settings").from_json(text, r.source.path)
  local refused, only_position = {}, true
  for _, row in ipairs(require "moonreel.settings.difference"(then_settings, r.settings)) do
    local change = r.settings.data_change
    local leaves = r.scratch or change == "next" or change == "restart"
    local resume = row.position and leaves and "free" or row.resume
    local effect = resume == "refuse" and row.position and "the position in the data counts by it"
      or resume
    local line = ("%s: %s when the checkpoint was made, %s now by %s: %s"):format(row.path,
      row.was or "absent", row.now or "absent",
      row.at, effect)
    if resume == "refuse" then
      refused[#refused + 1] = line
      only_position = only_position and row.position
    elseif row.affects == "run" or resume == "warn" then
      r.progress:say(line)
    end
  end
  if #refused > 0 then
    local path, leave = r.source.path, only_position and "data_change=next or "
      .. "--start-from-scratch to leave the position, or " or ""
    base.raise("MR_E_RECIPE", ("%s does not continue under this recipe:\n  %s\n  try: "
      .. "%s--ckpt-path %s for weights alone"):format(path,
      table.concat(refused, "\n  "), leave, path))
  end
end

--- Compare the recipe with the one the checkpoint was made with.
function setup.compare(r)
  if not r.found then
    return
  end
  local meta = r.source.manifest
  if meta.settings then
    compare_settings(r, meta.settings)
  end
end

-- the models; what they refuse is told with the lines of the fields
local function models_of(s, dtype, cut)
  local pipe = blame.record(s, "model", pipeline.of, s, dtype, cut)
  lengths.check_buckets(s, pipe.autoencoder)
  conditions.check(s, pipe)
  feed.check(s, pipe)
  renderings.check(s, pipe)
  if not pipe.reconstructs and pipe.flow.check then
    blame.record(s, "scheduler", pipe.flow.check, s)
  end
  return pipe
end

-- the field that asks for inputs of a kind from a cache, and the record that would make them
local parts = {{"latents", "load_video_features", "vae", "autoencoder"},
  {"text", "load_text_features", "text_encoder", "text"}}

-- inputs of a step that come from a cache: kind -> field that says so
local function cached_inputs(r)
  local s, kinds = r.settings, {}
  for _, row in ipairs(parts) do
    local kind, field, record, part = table.unpack(row)
    kinds[kind] = s.cached and "cached" or s[field] and field or nil
    if kinds[kind] and not r.pipe[part].apart then
      blame.raise(s, kinds[kind], "MR_E_RECIPE", "%s = true: %s %s is a part of the step, which no "
        .. "cache holds; try: %s = false", kinds[kind], record, s[record].type, kinds[kind])
    end
  end
  return kinds
end

-- how the ranks are laid out; only tokens of a transformer are shared
local function mesh_of(r, here)
  local s = r.settings
  if r.pipe.reconstructs and mesh.shared(s) > 1 then
    blame.raise(s, "plugin_config.sp_size", "MR_E_RECIPE", "sp_size = %d: %s has no tokens that "
      .. "ranks could share; try: sp_size = 1", mesh.shared(s), s.model.type)
  end
  return mesh.new(s, r.team, not r.pipe.reconstructs and r.pipe.model.config.num_heads or nil, here,
    r.facts.device ~= "cpu")
end

-- each rank of a host has a GPU of its own: the one that its launcher lets it see, or the next one
local function device_of(s, here)
  local seen = os.getenv "CUDA_VISIBLE_DEVICES"
  local only = seen and seen ~= "" and not seen:find(",", 1, true)
  return s.device == "cuda" and not only and "cuda:" .. here.local_rank or s.device
end

-- the state of a model on its device; one without room for it is told with the bytes of both
local function executor(r, params)
  local good, exec = pcall(E.new, r.device, params, {regions = r.regions})
  if good then
    return exec
  end
  if type(exec) ~= "table" or exec.code ~= "MR_E_MEMORY" then
    error(exec, 0)
  end
  local planned <close> = E.plan(params, {regions = r.regions, facts = r.facts})
  local bytes = 0
  for _, region in ipairs(planned:regions()) do
    bytes = bytes + region.bytes
  end
  return blame.raise(r.settings, "device", "MR_E_MEMORY", "parameters and their state take %s, %s "
    .. "are free for them on %s\n  try: optim.offload = true, more ranks with "
    .. "plugin_config.zero_stage = 3, a device with more memory", progress.bytes(bytes),
    progress.bytes((r.device:memory())), r.facts.device)
end

--- Open the device and declare the models. A rank may fail here alone: nothing here waits for
-- others.
function setup.models(r)
  local s = r.settings
  r.device = r:keep(blame.field(s, "device", E.device, device_of(s, comm_place.find()), s.threads))
  if s.host_steps == "refuse" then
    r.device:refuse_host()
  end
  r.facts = r.device:facts()
  local watch = gpu.watch(r.device)
  r.gpu = watch and r:keep(watch)
  r.dtype = pipeline.dtype(s, r.device)
  r.pipe = models_of(s, r.dtype, ranks.cut(s, r.team.size))
end

-- when second moments began, and what the optimizer before knew otherwise of them
local function note_moments(r)
  local since, counts = state.second_moments(r.pipe.params, r.source)
  if counts.fresh > 0 then
    r.notes[#r.notes + 1] = ("%s has no second moments of %d tensors, which Muon updated: they "
      .. "begin at zero, and their bias correction with them"):format(r.source.path, counts.fresh)
  end
  if counts.left > 0 then
    r.notes[#r.notes + 1] = ("Muon goes on with the first moments of %d matrices of %s and leaves "
      .. "their second moments"):format(counts.left, r.source.path)
  end
  return since
end

--- Lay out the ranks, allocate the models' state.
function setup.state(r)
  local s, params, node = r.settings, r.pipe.params, r.team:even(comm_place.find())
  r.mesh = mesh_of(r, node)
  r.notes[#r.notes + 1] = r.mesh.crosses
  samples.count_micros(r)
  if r.team.world then
    r.ranks = ranks.new(params, r.team.world, {local_ranks = node, stage = ranks.stage(s),
      whole = not s.plugin_config.reduce_each and r.micros > r.mesh.data})
    r.share = state.share(params, r.ranks:owned(), r.team.rank, r.team.size)
    -- where a rank has one micro-batch of a step, it ends with the reduction, beside backward
    r.reduced = r.ranks.gradients or r.micros <= r.mesh.data
    r.told = r.reduced or r.ranks.weights
  end
  if r.found then
    r.since = note_moments(r)
  end
  r.rule = blame.record(s, "optim", optim.rule, s)
  r.fresh = regions.fresh(r.ranks, r.micros)
  r.regions = regions.of(s, r.ranks, r.dtype, r.fresh, params)
  r.exec = r:keep(executor(r, params))
  r.cached = cached_inputs(r)
  if r.pipe.autoencoder.apart and not r.cached.latents then
    r.pipe.config.vae.from_pretrained = source_of(r, "vae.from_pretrained")
    r.codec = r:keep(blame.field(s, "vae.from_pretrained", codec.new, r.pipe, r.exec, r.device))
  end
  if not r.cached.text then
    r:keep(embed.open_all(s, r.pipe, r.device, true))
  end
  r.machine = {isa = r.facts.isa, threads = r.facts.threads,
    libraries = {device = r.facts.device, dtype = r.dtype}}
  if r.found then
    for _, line in ipairs(ckpt.machine_differences(r.source.manifest, r.machine)) do
      r.notes[#r.notes + 1] = "not bit for bit: " .. line
    end
  end
end

-- A stage that takes everything from the one before it also takes its position in the data, which
-- counts in the samples of one index.
local function check_swap(r, before)
  local s = r.settings
  if r.scratch then
    return
  end
  for _, was in ipairs(sources.of(before)) do
    local path, input = samples.index_of(was.path)
    for _, source in ipairs(r.sources) do
      local other <close> = source.name == was.name and source.change == "refuse" and not input
        and data.open(path) or nil
      if other and other.meta.fp_set ~= source.index.meta.fp_set then
        blame.raise(s, source.field, "MR_E_DATA", "%s = %q holds other samples than %q of the "
          .. "stage before, whose position this stage goes on from by load = recipe.previous (%s); "
          .. "try: start_from_scratch = true, data_change = \"carry\", or ckpt_path = "
          .. "recipe.previous", source.field, source.path, was.path, blame.place(s, "load"))
      end
    end
  end
end

-- The sources of a stage, as many as are there to be opened; the others will be made of tables.
local function open_there(r, kept)
  local whole = true
  r.sources = sources.of(r.settings)
  for _, source in ipairs(r.sources) do
    local path, input = samples.index_of(source.path)
    if not input then
      source.index = blame.field(r.settings, source.field, data.open, path)
      kept[#kept + 1] = source.index
      blame.field(r.settings, source.field, place.pick, source)
    elseif not base.exists(input) then
      blame.raise(r.settings, source.field, "MR_E_DATA", "%s: no such file or folder, and no index "
        .. "%s", input, path)
    else
      whole = false
    end
  end
  return whole
end

--- All that can be known of a stage before it begins, without writing: fields, weights, models,
-- data, buckets.
---@param settings table  baked
---@param stage table     as trainer.run takes it; previous = true: the stage before will leave a
---   checkpoint, and `before` are its settings
function setup.rehearse(settings, stage)
  local r = {settings = settings, stage = stage, notes = {}, team = team.new()}
  setup.check(r)
  local waits = stage.previous == true and (settings.load == "recipe.previous"
    or settings.ckpt_path == "recipe.previous")
  r.scratch = starts_from_scratch(settings)
  if not waits then
    setup.find(r)
  end
  models_of(settings, "f32")
  local kept <close> = setmetatable({}, {__close = function(list)
    for _, index in ipairs(list) do
      index:close()
    end
  end})
  if open_there(r, kept) then
    r.index = r.sources[1].index
    samples.open_loader(r, {epochs = 1}):close()
    if waits and settings.load then
      check_swap(r, stage.before)
    end
  end
end

-- Weights to start from, with what was dropped, resized or left fresh.
local function start_weights(r)
  local path, maps = r.source.path, r.pipe.maps
  blame.beside(r.settings, "model", start.check_sizes, r.source, maps)
  local report = fill.weights(r.exec, r.pipe.params, r.source, {maps = maps, finite = true})
  r.parent = path
  if #report.loaded == 0 then
    base.raise("MR_E_CKPT", ("%s: no tensor of it fits this model\n  %s"):format(path,
      start.nearest(r.source, r.pipe.params:list())))
  end
  if r.settings.strict then
    start.refuse(path, report)
  end
  r.notes[#r.notes + 1] = path .. ": " .. start.summary(report)
  local told = start.table(report)
  if #told > 0 then
    for line in tostring(told):gmatch("[^\n]+") do
      r.notes[#r.notes + 1] = line
    end
  end
  local function listed(rows, fields)
    local out = json.array()
    for i, row in ipairs(rows) do
      out[i] = {}
      for _, field in ipairs(fields) do
        out[i][field] = row[field]
      end
    end
    return out
  end
  r.journal:append{kind = "weights", path = path, layout = report.layout,
    missing = json.array(report.missing), unexpected = json.array(report.unexpected),
    dropped = listed(report.dropped, {"name", "why"}),
    fresh = listed(report.fresh, {"name", "why"}),
    resized = listed(report.resized, {"name", "file", "model", "how"})}
end

--- Measure mean and deviation of the latents' channels over the data. No step of an autoencoder
-- that trains depends on them.
function setup.measure(r)
  local function measure()
    local loader <close> = samples.open_loader(r, {epochs = 1})
    return statistics.measure(r.exec, r.pipe, loader)
  end
  -- weights that ranks share are there only while all of them run the same
  local together = r.pipe.reconstructs and r.ranks and r.ranks.weights
  local measured = together and r.team:try(measure) or r.team:first(measure)
  statistics.set(r.exec, r.pipe, measured)
end

-- batches of an epoch: of several sources as often as each is gone through until all have been
local function batches_of_epoch(r)
  local rows, batches = {}, 0
  if #r.sources == 1 then
    return r.plan.batches
  end
  for i, source in ipairs(r.plan.sources) do
    rows[i] = source.samples
  end
  for i, passes in ipairs(sources.passes(r.sources, rows)) do
    batches = batches + passes * r.plan.sources[i].batches
  end
  return batches
end

--- Fill weights, moments and averages: fresh, from weights, or from a whole state.
function setup.fill(r)
  local s = r.settings
  state.set_counts(r, {step = 0, updates = 0})
  if r.found then
    state.load(r.exec, r.pipe.params, r.source)
    local m = r.source.manifest.run_state
    state.set_counts(r, r.scratch and {step = 0, updates = m.updates} or m)
    r.parent = r.source.path
    r.notes[#r.notes + 1] = ("continues %s at step %d"):format(r.source.path, r.step)
  else
    r.exec:init(s.seed)
    local auto = r.pipe.autoencoder
    if auto.moments and not (auto.apart or r.pipe.reconstructs) then
      setup.measure(r)
    end
    if r.source then
      blame.field(s, "ckpt_path", start_weights, r)
    end
  end
  if r.source then
    -- it keeps blocks that were read; what its manifest says stays
    r.source:close()
  end
  local total = s.steps
  if total == 0 then
    total = math.ceil(batches_of_epoch(r) * s.epochs / r.micros)
  end
  r.total_steps = total
  r.progress.total = total
  -- the reference of 2.0 warms up from a rate that is not 0, and its schedule counts micro-steps
  local theirs = s.compat == "opensora-2.0"
  local micro_steps = theirs and s.accumulate or 1
  r.lr_at = schedule.new{kind = s.lr_schedule, lr = s.optim.lr, warmup_steps = s.warmup_steps,
    cooldown_steps = s.cooldown_steps, initial_lr = theirs and FIRST_LR_20 or nil,
    min_lr = s.min_lr, max_lr = s.max_lr, anneal_strategy = s.anneal_strategy,
    total_steps = total * micro_steps, micro_steps = micro_steps, compat = s.compat ~= nil}
end

-- a rollback may be meant to go further back than checkpoints are kept
local function tell_reach(r)
  local s = r.settings
  local kept = ckpt.kept(s.keep_n_latest)
  local reach = (kept - 1) * s.ckpt_every
  if s.spike.action == "rollback" and reach < s.spike.back_steps then
    r.notes[#r.notes + 1] = ("spike.back_steps = %d: the %d checkpoints that are kept go back at "
      .. "least %d steps; try: keep_n_latest=%d"):format(s.spike.back_steps, kept, reach,
      -(-s.spike.back_steps // s.ckpt_every) + 1)
  end
end

--- A checkpoint writer of the run, one of so many that write each checkpoint together.
---@param r mr.Run
---@param writers integer
---@return mr.Saver
function setup.open_saver(r, writers)
  local kept = ckpt.kept(r.settings.keep_n_latest)
  return ckpt.saver(r.dir, {lock = r.lock, keep = math.tointeger(kept) or -1,
    deadline_s = r.settings.ckpt_deadline, rank = r.team.rank, ranks = writers,
    fence = not r.team.leads and r.fence or nil})
end

-- A disk that cannot hold two checkpoints loses the run at its first or second save: the older one
-- goes when the newer one is there. Those of this run that are there already make room.
local function check_disk(r)
  local bytes = r.team:sum{state.saved_bytes(r.exec, r.share)}[1]
  r.team:first(function()
    local free, there = base.free_bytes(r.dir), #ckpt.steps(r.dir)
    if free and free + there * bytes < 2 * bytes then
      base.raise("MR_E_IO", ("%s: %s are free, and two checkpoints of %s take %s: the newer one is "
        .. "written before the older one goes; try: outputs=FOLDER on another disk"):format(r.dir,
          progress.bytes(free), progress.bytes(bytes), progress.bytes(2 * bytes)))
    end
    return {}
  end)
end

--- Start the checkpoint writer, with its buffers where it will save on the way.
function setup.saver(r)
  check_disk(r)
  r.saver = r:keep(setup.open_saver(r, r.team.size))
  tell_reach(r)
  local buffers = cadence.buffers(r.settings)
  if buffers > 0 then
    state.with_rows(r.exec, r.pipe.params, function(rows) r.saver:prepare(rows, buffers) end,
      r.share)
  end
end

return setup
