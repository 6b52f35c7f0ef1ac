--- Opening a run: its device, models and state.
-- Each function is one named step of the trainer and takes the run `r`.
-- @module moonreel.trainer.setup
local ckpt = require "moonreel.ckpt"
local coded = require "moonreel.ckpt.coded"
local fill = require "moonreel.ckpt.fill"
local start = require "moonreel.ckpt.start"
local codec = require "moonreel.codec"
local lengths = require "moonreel.codec.lengths"
local mesh = require "moonreel.comm.mesh"
local clips = require "moonreel.comm.clips"
local comm_place = require "moonreel.comm.place"
local base = require "moonreel.core.base"
local E = require "moonreel.core.exec"
local json = require "moonreel.core.json"
local embed = require "moonreel.embed"
local pipeline = require "moonreel.models.pipeline"
local optim = require "moonreel.optim"
local ranks = require "moonreel.optim.ranks"
local regions = require "moonreel.optim.regions"
local schedule = require "moonreel.optim.schedule"
local blame = require "moonreel.settings.blame"
local sources = require "moonreel.settings.sources"
local conditions = require "moonreel.trainer.conditions"
local feed = require "moonreel.trainer.feed"
local gpu = require "moonreel.trainer.gpu"
local origin = require "moonreel.trainer.origin"
local progress = require "moonreel.trainer.progress"
local renderings = require "moonreel.trainer.renderings"
local samples = require "moonreel.trainer.samples"
local state = require "moonreel.trainer.state"
local statistics = require "moonreel.trainer.statistics"

local setup = {}

-- the rate from which the warm-up of Open-Sora 2.0 begins
local FIRST_LR_20 <const> = 1e-6
local DISCRIMINATOR_LR <const> = 1e-4

--- Declares the models; their errors name the lines of the fields.
---@param s table          settings
---@param dtype string
---@param cut table|nil    slices for ranks (moonreel.optim.ranks.cut)
---@param split mr.Split|nil  from moonreel.comm.mesh
---@return mr.Pipeline
function setup.models_of(s, dtype, cut, split)
  local pipe = blame.record(s, "model", pipeline.of, s, dtype, cut, split)
  lengths.check_buckets(s, pipe.autoencoder)
  conditions.check(s, pipe)
  feed.check(s, pipe)
  renderings.check(s, pipe)
  if pipe.losses then
    blame.record(s, "vae_loss_config", pipe.losses.check, pipe.losses)
  end
  if not pipe.reconstructs and pipe.flow.check then
    blame.record(s, "scheduler", pipe.flow.check, s)
  end
  return pipe
end

-- the field that takes a kind of input from a cache, and the record of the encoder for it
local parts = {{"latents", "load_video_features", "vae", "autoencoder"},
  {"text", "load_text_features", "text_encoder", "text"}}

-- inputs of a step that come from a cache: kind -> field that says so
local function cached_inputs(r)
  local s, kinds = r.settings, {}
  for _, row in ipairs(parts) do
    local kind, field, record, part = table.unpack(row)
    kinds[kind] = s.cached and "cached" or s[field] and field or nil
    if kinds[kind] and not r.pipe[part].apart then
      blame.raise(s, kinds[kind], "MR_E_RECIPE", "%s = true: %s %s runs within the training step, "
        .. "so no cache can store its results; try: %s = false", kinds[kind], record,
        s[record].type, kinds[kind])
    end
  end
  return kinds
end

-- the arrangement of the ranks: they share tokens of a transformer, or clips of an autoencoder
local function mesh_of(r, here)
  local s = r.settings
  if r.pipe.reconstructs and mesh.shared(s) > 1 then
    blame.raise(s, "plugin_config.sp_size", "MR_E_RECIPE", "sp_size = %d: %s has no tokens that "
      .. "ranks could share; try: plugin_config_ae.sp_size = %d, which shares rows of clips",
      mesh.shared(s), s.model.type, mesh.shared(s))
  elseif r.pipe.reconstructs then
    return clips.mesh(s, r.team, r.pipe.autoencoder)
  end
  return mesh.new(s, r.team, r.pipe.model.config.num_heads, here, r.facts.device ~= "cpu",
    r.split)
end

-- Allocates the state of a model on its device. If it does not fit, the error has both sizes.
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
  return blame.raise(r.settings, "device", "MR_E_MEMORY", "parameters and their state need %s, "
    .. "and %s are free for them on %s\n  try: optim.offload = true, more ranks with "
    .. "plugin_config.zero_stage = 3, a device with more memory", progress.bytes(bytes),
    progress.bytes((r.device:memory())), r.facts.device)
end

--- Opens the device and declares the models. One rank alone may fail here, so nothing here waits
-- for other ranks.
function setup.models(r)
  local s = r.settings
  r.device = r:keep(blame.field(s, "device", E.device, comm_place.device(s.device), s.threads))
  if s.host_steps == "refuse" then
    r.device:refuse_host()
  end
  r.facts = r.device:facts()
  local watch = gpu.watch(r.device)
  r.gpu = watch and r:keep(watch)
  r.dtype = pipeline.dtype(s, r.device)
  r.split = mesh.split(s, r.team.rank)
  r.pipe = setup.models_of(s, r.dtype, ranks.cut(s, r.team.size), r.split)
end

-- notes which second moments began late, and which state of the earlier optimizer is not used
local function note_moments(r)
  local since, counts = state.second_moments(r.pipe.params, r.source)
  if counts.fresh > 0 then
    r.notes[#r.notes + 1] = ("%s has no second moments of %d tensors, which Muon updated until "
      .. "now; they begin at zero, and their bias correction with them"):format(r.source.path,
      counts.fresh)
  end
  if counts.left > 0 then
    r.notes[#r.notes + 1] = ("Muon uses the first moments of %d matrices of %s and drops "
      .. "their second moments"):format(counts.left, r.source.path)
  end
  r.notes[#r.notes + 1] = coded.note(r.source, r.pipe.params, r.settings.optim.moment_bits)
  return since
end

--- Lays out the ranks over the parameters of r.pipe, and allocates this rank's part of the state:
-- mesh, ranks, regions, exec.
function setup.layout(r)
  local s, params, node = r.settings, r.pipe.params, r.team:even(comm_place.find())
  r.mesh = mesh_of(r, node)
  state.check_scales(s, params, r.split.ranks)
  r.notes[#r.notes + 1] = r.mesh.crosses
  samples.count_micros(r)
  if r.team.world then
    r.ranks = ranks.new(params, r.mesh.alike, {stage = ranks.stage(s), all = r.team.world,
      counts = r.split.at == 0, local_ranks = r.split.ranks == 1 and node
        or node and node % r.split.ranks == 0 and node // r.split.ranks or nil,
      whole = not s.plugin_config.reduce_each and r.micros > r.mesh.data})
    r.share = state.share(params, r.ranks)
    -- if a rank has one micro-batch in a step, the micro-batch ends with the reduction, in parallel
    -- with the backward pass
    r.reduced = r.ranks.gradients or r.micros <= r.mesh.data
    r.reported = r.reduced or r.ranks.weights
  end
  r.rule = blame.record(s, "optim", optim.rule, s)
  r.fresh = regions.fresh(r.ranks, r.micros)
  r.regions = regions.of(s, r.ranks, r.dtype, r.fresh, params)
  r.exec = r:keep(executor(r, params))
end

--- Allocates the models' state, and opens the encoders of their inputs.
function setup.state(r)
  local s = r.settings
  setup.layout(r)
  if r.found then
    r.since = note_moments(r)
  end
  r.cached = cached_inputs(r)
  if r.pipe.autoencoder.apart and not r.cached.latents then
    r.pipe.config.vae.from_pretrained = origin.of(r, "vae.from_pretrained")
    clips.join(s, r.mesh, r.pipe.autoencoder)
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

-- Loads weights to start from, and reports dropped, resized and fresh tensors.
local function start_weights(r)
  local path, maps = r.source.path, r.pipe.maps
  blame.compare(r.settings, "model", start.check_sizes, r.source, maps)
  local report = fill.weights(r.exec, r.pipe.params, r.source, {maps = maps, finite = true})
  r.parent = path
  if #report.loaded == 0 then
    base.raise("MR_E_CKPT", ("%s: none of its tensors fits this model\n  %s"):format(path,
      start.nearest(r.source, r.pipe.params:list())))
  end
  if r.settings.strict then
    start.refuse(path, report)
  end
  r.notes[#r.notes + 1] = path .. ": " .. start.summary(report)
  local reported = start.table(report)
  if #reported > 0 then
    for line in tostring(reported):gmatch("[^\n]+") do
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

--- Measures mean and deviation of the latents' channels over the data. The steps of an autoencoder
-- that trains do not depend on them.
function setup.measure(r)
  local function measure()
    local loader <close> = samples.open_loader(r, {epochs = 1})
    return statistics.measure(r.exec, r.pipe, loader)
  end
  -- weights that ranks share can be used only while all ranks run the same
  local together = r.pipe.reconstructs and r.ranks and r.ranks.weights
  local measured = together and r.team:try(measure) or r.team:first(measure)
  statistics.set(r.exec, r.pipe, measured)
end

-- batches of an epoch; with several sources each is repeated until all have been gone through
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

-- the step with which a run begins that does not use the position of its checkpoint
local function start_step(r)
  local at = r.start or {epoch = 0, step = 0}
  return at.epoch * batches_of_epoch(r) // r.micros + at.step
end

-- How the models after the first are updated, as functions of the number of the update; nil if
-- there is only one model.
local function others_of(r, total)
  local s = r.settings
  if not (r.pipe.losses and r.pipe.losses.adversary) then
    return nil
  end
  local o, first = s.discriminator_optim, s.optim
  if first.type == "muon" then
    blame.raise(s, "optim.type", "MR_E_RECIPE", "optim.type = muon cannot be used with a "
      .. "discriminator, which has no matrices for it; try: optim.type = adamw")
  end
  local betas = o.betas or first.betas
  local lr_at = schedule.new{kind = "constant", lr = o.lr or DISCRIMINATOR_LR,
    warmup_steps = s.discriminator_schedule.warmup_steps or 0, cooldown_steps = 0,
    total_steps = total, micro_steps = 1, compat = s.compat ~= nil,
    initial_lr = s.compat == "opensora-2.0" and FIRST_LR_20 or nil}
  return function(updates)
    return {{lr = lr_at(updates), beta1 = betas[1], beta2 = betas[2], eps = o.eps or first.eps,
      weight_decay = o.weight_decay or 0}}
  end
end

--- Fills weights, moments and averages: with initial values, from weights, or from a whole state.
function setup.fill(r)
  local s = r.settings
  state.set_counts(r, {step = 0, updates = 0})
  if r.found then
    state.load(r.exec, r.pipe.params, r.source)
    local m = r.source.manifest.run_state
    state.set_counts(r, r.scratch and {step = start_step(r), updates = m.updates} or m)
    r.choices = m.recompute
    r.parent = r.source.path
    r.notes[#r.notes + 1] = ("continues %s at step %d%s"):format(r.source.path, r.step, r.start
      and (": step %d of epoch %d"):format(r.start.step, r.start.epoch) or "")
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
  if r.pipe.losses then
    blame.record(s, "vae_loss_config", r.pipe.losses.load, r.pipe.losses, r.exec, r.pipe.params,
      not r.found)
  end
  if r.source then
    -- the checkpoint keeps blocks that were read; its manifest stays available
    r.source:close()
  end
  local total = s.steps
  if total == 0 then
    total = math.ceil(batches_of_epoch(r) * s.epochs / r.micros)
  end
  if r.start and r.step >= total then
    blame.raise(s, s.start_epoch and "start_epoch" or "start_step", "MR_E_USAGE", "step %d of "
      .. "epoch %d is step %d of the run, which has %d; try: a larger steps or epochs",
      r.start.step, r.start.epoch, r.step, total)
  end
  r.total_steps = total
  r.progress.total = total
  -- the reference of 2.0 starts its warm-up from a rate above 0, and its schedule counts
  -- micro-steps
  local theirs = s.compat == "opensora-2.0"
  local micro_steps = theirs and s.accumulate or 1
  r.lr_at = schedule.new{kind = s.lr_schedule, lr = s.optim.lr, warmup_steps = s.warmup_steps,
    cooldown_steps = s.cooldown_steps, initial_lr = theirs and FIRST_LR_20 or nil,
    min_lr = s.min_lr, max_lr = s.max_lr, anneal_strategy = s.anneal_strategy,
    total_steps = total * micro_steps, micro_steps = micro_steps, compat = s.compat ~= nil}
  r.others = others_of(r, total)
end

return setup
