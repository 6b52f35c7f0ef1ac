--- What a recipe's run takes on a mesh of GPUs, before it runs: bytes by kind, seconds by part, and
-- with an index what each epoch holds. Bytes are those of the layouts of the trainer's own graphs.
-- @module moonreel.plan
local about = require "moonreel.cache.about"
local blame = require "moonreel.settings.blame"
local buckets = require "moonreel.data.buckets"
local cadence = require "moonreel.trainer.cadence"
local collective = require "moonreel.plan.collective"
local compiled = require "moonreel.plan.compiled"
local conditions = require "moonreel.trainer.conditions"
local figures = require "moonreel.plan.figures"
local lengths = require "moonreel.codec.lengths"
local pipeline = require "moonreel.models.pipeline"
local readers = require "moonreel.settings.readers"
local recompute = require "moonreel.trainer.recompute"
local renders = require "moonreel.plan.renders"
local schedule = require "moonreel.plan.schedule"
local launched = require "moonreel.trainer.check"
local sharing = require "moonreel.optim.ranks"
local simulate = require "moonreel.plan.simulate"

local plan = {}

--- Sizes of buckets that are tried where better ones are looked for, in 2^20 elements, and how many
-- times as fast is worth a change.
plan.bucket_sizes, plan.notable = { 8, 16, 32, 64, 128, 256, 512, 1024 }, 1.001

--- The kinds of bytes of one rank, in the order in which people read them: {key, title, where}.
plan.kinds = {
  { "weights", "weights", "device" }, { "frozen", "frozen weights", "device" },
  { "encoders", "encoders", "device" }, { "gradients", "gradients", "device" },
  { "masters", "master weights", "device" }, { "moments", "moments", "device" },
  { "averages", "averages", "device" }, { "windows", "gathered weights", "device" },
  { "arena", "activations and workspace", "device" },
  { "encoding", "encoders at work", "device" },
  { "slots", "inputs, results, constants", "device" },
  { "reserve", "libraries and communication", "device" },
  { "pinned", "activations moved to the host, inputs on their way", "host" },
  { "offloaded", "what the optimizer keeps", "host" },
  { "slabs", "decoded batches", "host" }, { "snapshots", "checkpoint buffers", "host" },
  { "graphs", "graphs and steps", "host" }, { "program", "the program itself", "host" },
  { "decoders", "processes that decode", "host" },
}

-- names of ops, or of fields, in one note
local MOST_NAMED = 6

-- what a process that decodes has for itself, beside pages of libraries that all share
local DECODER_BYTES = 13e6

-- ---- buckets ----

-- tokens of a bucket's batch
local function tokens_of(models, b)
  local size = models.pipe.autoencoder:latent(b.frames, b.height, b.width)
  local frames, rows, cols = models.pipe.model:grid(size[2], size[3], size[4])
  return b.batch * frames * rows * cols
end

-- of the aspects of one resolution and length only that with most tokens is compiled: the others
-- have as many or a few less
local function largest_aspects(models, list, carries)
  local by, out = {}, {}
  for _, b in ipairs(list) do
    b.tokens = tokens_of(models, b)
    local key = b.resolution .. " " .. b.frames
    local kept = by[key]
    if not kept then
      by[key], out[#out + 1] = { at = #out + 1, samples = 0, batches = 0, aspects = 0,
        carried = 0, pixels = 0 }, b
      kept = by[key]
    elseif b.tokens > out[kept.at].tokens then
      out[kept.at] = b
    end
    kept.samples, kept.aspects = kept.samples + (b.samples or 0), kept.aspects + 1
    kept.pixels = kept.pixels + (b.samples or 0) * (b.pixels or 0)
    -- the last batch of a bucket may be short, or wait for samples of the next epoch
    local whole, rest = (b.samples or 0) // b.batch, (b.samples or 0) % b.batch
    kept.batches = kept.batches + whole + (rest > 0 and not carries and 1 or 0)
    kept.carried = kept.carried + (carries and rest or 0)
  end
  for _, kept in pairs(by) do
    local b = out[kept.at]
    b.samples, b.batches, b.aspects = kept.samples, kept.batches, kept.aspects
    b.carried = kept.carried
    b.source_pixels = kept.samples > 0 and kept.pixels / kept.samples or nil
  end
  return out
end

--- The recipe's bucket table as the core takes it, short lengths first.
---@param settings table
---@return table[] resolutions  as moonreel.data.buckets resolve
function plan.resolutions(settings)
  local list = buckets.resolve(settings:plain("bucket_config"), settings:plain("resolutions"),
    nil, settings.compat, settings.ae_spatial_compression)
  for _, r in ipairs(list) do
    table.sort(r.lengths, function(a, b) return a[1] < b[1] end)
  end
  return list
end

-- every bucket that the recipe's table lets samples into
local function buckets_of_table(settings)
  local list = {}
  for _, r in ipairs(plan.resolutions(settings)) do
    for _, length in ipairs(r.lengths) do
      local frames, keep, try, batch = table.unpack(length)
      for _, aspect in ipairs(keep * try > 0 and batch > 0 and r.aspects or {}) do
        list[#list + 1] = { resolution = r.name, frames = frames, height = aspect[2],
          width = aspect[3], batch = batch }
      end
    end
  end
  return list
end

-- ---- bytes ----

-- the loader's ring: slabs of the largest batch (core/data/loader.c)
local function slab_bytes(settings, list)
  local largest = 0
  for _, b in ipairs(list) do
    largest = math.max(largest, b.batch * b.frames * 3 * b.height * b.width)
  end
  return math.max(settings.prefetch + 2, 4) * ((largest + 4095) // 4096 * 4096)
end

-- elements that ranks send each other at once
local function bucket_elements(settings, mesh, models)
  local cut = sharing.cut(settings, mesh.ranks)
  return cut and cut.elements or models.trained
end

-- bytes of one rank that do not depend on the bucket
local function fixed_bytes(settings, mesh, models, shares)
  local m, bytes = mesh.machine, {}
  for kind, value in pairs(shares.regions) do
    bytes[kind] = value
  end
  bytes.encoders = models.encoders.weights
  bytes.reserve = m.reserve_bytes
  bytes.snapshots = models.job and 0 or cadence.buffer_bytes(settings, shares.saved)
  bytes.program = m.cpu and m.program_bytes or 0
  bytes.decoders = settings.num_workers * DECODER_BYTES
  return bytes
end

-- bytes of host memory that a step keeps inputs of blocks in, where the recipe allows fewer: both
local function above_buffer(settings, step)
  local most = settings.grad_ckpt_buffer_size or 0
  local needs = step.memory.pinned
  return most > 0 and needs > most and { needs = needs, has = most } or nil
end

-- the total of a row and whether it fits: where the device is the host, both are one memory
local function settle(row, m)
  row.total = row.bytes.device + (m.cpu and row.bytes.host or 0)
  row.fits = row.total <= m.memory_bytes and not row.above_buffer
end

local function sum(bytes, where)
  local total = 0
  for _, kind in ipairs(plan.kinds) do
    total = total + (kind[3] == where and bytes[kind[1]] or 0)
  end
  return total
end

-- what stays of a compiled shape for itself
local function slots_of(memory)
  return memory.inputs + memory.results + memory.consts
end

-- the same on the host
local function graphs_of(memory)
  return memory.host - memory.staging + memory.staged
end

-- what one rank holds while a bucket runs; arena and slots of the larger of micro-step and update
local function bytes_of(fixed, step, update)
  local bytes = {}
  for key, value in pairs(fixed) do
    bytes[key] = value
  end
  bytes.arena, bytes.windows = math.max(step.memory.arena, update.arena), 0
  -- at the peak of a micro-step weights and gradients of others lie in the arena, too
  if step.windows and step.memory.arena >= update.arena then
    bytes.arena, bytes.windows = bytes.arena - step.windows - step.buckets, step.windows
    bytes.gradients = bytes.gradients + step.buckets
  end
  bytes.slots = slots_of(step.memory) + slots_of(update)
    + math.max(step.memory.landing, update.landing)
  bytes.pinned = step.memory.pinned + step.memory.staged + update.staged + step.memory.ring
  bytes.encoding = step.encoding
  bytes.reserve = bytes.reserve or math.max(step.memory.library, update.library)
  bytes.graphs = step.memory.host + update.host - update.staging
  -- shares of what is cut for ranks end at whole bytes
  for key, value in pairs(bytes) do
    bytes[key] = math.ceil(value)
  end
  bytes.device, bytes.host = sum(bytes, "device"), sum(bytes, "host")
  return bytes
end

-- what programs of all buckets take beside that of one, within the recipe's bound: slots, graphs
local function beside(kept, all, settings)
  local share = math.min(1, settings.programs_bytes / (all.slots + all.graphs))
  return math.max(0, share * all.slots - kept.slots), math.max(0, share * all.graphs - kept.graphs)
end

-- Programs of all buckets stay, within the recipe's bound: each row counts those of the others, as
-- far as there is room for them. Returns bytes that programs may have, where that is less.
local function keep_others(rows, settings, m)
  local all, least = { slots = 0, graphs = 0 }, nil
  for _, row in ipairs(rows) do
    all.slots, all.graphs = all.slots + row.kept.slots, all.graphs + row.kept.graphs
  end
  for _, row in ipairs(rows) do
    local bytes, kept = row.bytes, row.kept
    local more_slots, more_graphs = beside(kept, all, settings)
    local wanted, room = more_slots + (m.cpu and more_graphs or 0), m.memory_bytes - row.total
    if wanted > room and room >= 0 then
      more_slots, more_graphs = more_slots * room / wanted, more_graphs * room / wanted
      least = math.min(least or math.huge, kept.slots + kept.graphs + more_slots + more_graphs)
    end
    bytes.slots = bytes.slots + math.floor(more_slots)
    bytes.graphs = bytes.graphs + math.floor(more_graphs)
    bytes.device, bytes.host = sum(bytes, "device"), sum(bytes, "host")
    settle(row, m)
  end
  return least
end

-- ---- seconds ----

-- how much longer the slowest rank takes; the integral behind it is done once for a number of ranks
local known_slowest = {}
local function slowest_of(ranks)
  known_slowest[ranks] = known_slowest[ranks] or simulate.slowest(ranks, simulate.SIGMA)
  return known_slowest[ranks]
end

-- What ranks which share tokens or layers tell each other in a micro-step: seconds, and the bytes
-- that one sends. What the graph of a rank says is parted into near and far as attention is by
-- formula; ranks that share layers lie within a node. Layers of an autoencoder wait for each of
-- their many small messages.
-- Ref: reference parallelism 5 to 7.
local function exchange_of(settings, mesh, models, b, step)
  if mesh.sequence * mesh.layers == 1 or models.job then
    return { seconds = 0, bytes = 0 }
  end
  local m, config = mesh.machine, models.pipe.model.config
  local near, far = 1, 0
  local together, clips = mesh.sequence * mesh.layers <= mesh.gpus, step.encode_talk.clips
  if mesh.clips then
    near, far = together and 1 or 0, together and 0 or 1
  elseif mesh.sequence > 1 then
    near, far = mesh:exchange(settings, config.num_heads, tokens_of(models, b), config.hidden_size)
  end
  near, far = step.sent * near / (near + far), step.sent * far / (near + far)
  -- ranks that share tokens encode a part of the captions each
  near = near + step.encode_talk.text.bytes / mesh.sequence + (together and clips.bytes or 0)
  far = far + (together and 0 or clips.bytes)
  local calls = clips.calls + (mesh.clips and step.calls or 0)
  return { bytes = near + far, seconds = (near > 0 and near / m.node.link or 0)
    + (far > 0 and far * mesh.gpus / m.network.cards / m.network.card or 0)
    + (calls > 0 and calls * collective.call(m, together) or 0) }
end

-- parts of a micro-step; inputs of blocks that wait in host memory go there beside the forward
-- pass and come back beside the backward pass, which last as long as that takes at the least
local function micro_of(mesh, models, step, exchange)
  local share, parts, s = mesh.sequence * mesh.layers, step.parts, {}
  -- ranks that share a batch encode a part of it each, and read all that encodes it
  s.encode = parts.encode / share + parts.read
  for _, part in ipairs { "forward", "recompute", "backward" } do
    s[part] = parts[part] / (models.job and share or 1)
  end
  s.away = mesh.machine.cpu and 0 or step.memory.pinned / mesh.machine.host.pcie
  s.forward, s.backward = math.max(s.forward, s.away), math.max(s.backward, s.away - s.recompute)
  s.exchange, s.exchange_bytes = exchange.seconds, exchange.bytes
  s.micro = s.encode + s.forward + (s.backward + s.recompute) + s.exchange
  return s
end

-- an optimizer step over all ranks: micro-steps, what communication adds, update
local function seconds_of(settings, mesh, models, step, exchange)
  local m, n = mesh.machine, mesh:rounds(settings)
  local s = micro_of(mesh, models, step, exchange)
  -- ranks of a job tell each other nothing
  if models.job then
    mesh = mesh:alone()
  end
  local backward = s.backward + s.recompute
  s.update = models.update.seconds * mesh:share()
  s.input = m.cpu and 0 or step.memory.inputs / m.host.pcie
  local each = mesh:reduces_each(settings)
  local work = { input_s = s.input, encode_s = s.encode, forward_s = s.forward + s.exchange / 2,
    backward_s = backward + s.exchange / 2, update_s = s.update,
    parameters = models.trained // mesh.layers,
    weight_bytes = models.dtype == "f32" and 4 or 2, reduce = (each or n == 1) and "each" or "last",
    bucket = bucket_elements(settings, mesh, models) }
  -- the last micro-step and the update, with what they wait for; those before it tell less
  local how, before = schedule.of(mesh, work), { seconds = s.micro, reduce = 0, gather = 0 }
  if n > 1 and mesh.ranks > 1 then
    before = schedule.of(mesh, work, each)
  end
  s.reduce, s.gather = how.reduce + (n - 1) * before.reduce, how.gather + (n - 1) * before.gather
  s.exposed = mesh.ranks > 1 and how.seconds - s.micro - s.update
    + (n - 1) * (before.seconds - s.micro) or 0
  s.hidden = math.max(0, s.reduce + s.gather - s.exposed)
  s.slowest = (slowest_of(mesh.ranks) - 1) * n * s.micro
  s.step = n * s.micro + s.exposed + s.slowest + s.update
  return s, how
end

-- share of the peak rate that the useful operations reach
local function share_of_peak(mesh, models, step, seconds)
  return seconds.micro > 0
    and step.useful / (mesh.sequence * mesh.layers) / seconds.micro
      / mesh.machine.peak[models.dtype] or 0
end

-- cores that decode what one rank takes, sources of the size that the index says, without one as
-- large as the bucket; none where latents come from a cache
local function decode_cores(settings, mesh, b, step_s)
  local cached = settings.cached or settings.load_video_features
  local pixels = b.batch * (b.source_pixels or b.height * b.width) * (b.frames > 1
    and b.frames * (settings.dataset.frame_interval or 1) or 1) * mesh:rounds(settings)
  return cached and 0 or step_s > 0
    and pixels / (mesh.sequence * mesh.layers) / mesh.machine.decode_rate / step_s or 0
end

-- ---- a recipe ----

-- what has to be there before anything can be said
local function check(settings)
  if settings.job == "train" then
    launched.has_end(settings)
  end
  if not settings.bucket_config then
    blame.raise(settings, "bucket_config", "MR_E_RECIPE", "bucket_config is none: nothing says "
      .. "which shapes to plan; try: bucket_config = { [\"240p\"] = { [16] = { 1.0, 4 } } }")
  end
  for _, record in ipairs { "vae", "text_encoder" } do
    if not settings[record].type and not pipeline.reconstructs(settings) then
      blame.raise(settings, record .. ".type", "MR_E_RECIPE", "%s.type is none: training on stored "
        .. "features cannot be planned yet; try: a recipe with both encoders", record)
    end
  end
  local unknown = require "moonreel.settings.resolutions"(settings:leaves())[1]
  if unknown then
    blame.raise(settings, unknown.path, "MR_E_RECIPE", "%s", unknown.text)
  end
end

-- what a reader must know of where the figures come from
local function notes_of(mesh, models, aspects, guessed)
  local notes = {}
  local function note(form, ...) notes[#notes + 1] = form:format(...) end
  for _, line in ipairs(models.encoders.notes) do
    note("%s", line)
  end
  if mesh.sequence > 1 and mesh.clips then
    note("%d ranks share the %s of a clip", mesh.sequence, mesh.clips)
  elseif mesh.sequence > 1 then
    note("%d ranks share the tokens of a batch and what is encoded; text is with all of them",
      mesh.sequence)
  end
  if mesh.layers > 1 then
    note("%d ranks share each layer, and a batch", mesh.layers)
  end
  if aspects then
    note("of each resolution and length the aspect ratio with most tokens is planned")
  end
  if mesh.machine.here and mesh.ranks > 1 then
    note("ranks of this machine tell each other through its memory: %.3g GB/s are assumed",
      mesh.machine.node.link / 1e9)
  end
  local m = mesh.machine
  if not m.cpu then
    note("%s: workspace is that of plain kernels on one thread", m.name)
  end
  if not m.origin then
    note("%s: rates by %s", m.name, m.source)
  end
  for _, row in ipairs(m.assumed) do
    local value = type(row.value) == "table" and "shares by size" or ("%.4g"):format(row.value)
    note("%s: %s is assumed: %s%s", m.name, row.field, value,
      row.of and (" by its %s"):format(row.of) or "")
  end
  if m.here and not m.slower then
    note("a probe of some milliseconds tells steps up to a quarter too short or too long; try: "
      .. "moonreel bench --save mine, then --machine ./mine.lua; of a run: moonreel plan RUN")
  end
  if #guessed > 0 then
    note("%s was measured without %s%s in %s: rated as others of their kind", m.name,
      table.concat(guessed, ", ", 1, math.min(#guessed, MOST_NAMED)),
      #guessed > MOST_NAMED and (" and %d others"):format(#guessed - MOST_NAMED) or "",
      models.dtype)
  end
  return notes
end

-- a note of fields that are set and that a run refuses, because nothing reads them
local function unread_note(settings)
  local names, known = {}, {}
  for _, one in ipairs(readers.missing(settings)) do
    if not known[one.what] then
      known[one.what], names[#names + 1] = true, one.what
    end
  end
  return #names > 0 and ("a run refuses what nothing reads yet: %s%s; try: leave them out"):format(
    table.concat(names, ", ", 1, math.min(#names, MOST_NAMED)), #names > MOST_NAMED
      and (" and %d others"):format(#names - MOST_NAMED) or "") or nil
end

-- names of the ops of all buckets that a measured machine has no rate of
local function guessed_ops(rows)
  local names, known = {}, {}
  for _, row in ipairs(rows) do
    for _, op in ipairs(row.ops) do
      if op.guessed and not known[op.op] then
        known[op.op], names[#names + 1] = true, op.op
      end
    end
  end
  table.sort(names)
  return names
end

--- What becomes of an index's samples in an epoch.
---@param settings table       baked
---@param index moonreel.Index
---@param epoch integer        from 0
---@param members? mr.Subset   of these samples alone
---@param ranks? integer       of a run (1): what a reference leaves out depends on them
---@return table survey  of mr.BucketRule: buckets, each with its samples; dropped {why, rows,
---   example}; and index: its path, rows: all of its samples
function plan.survey(settings, index, epoch, members, ranks)
  local rule = buckets.rule(buckets.of(settings))
  local survey = rule:survey(index.core, settings.seed, epoch, members,
    settings.virtual_ranks > 1 and settings.virtual_ranks or ranks)
  survey.index, survey.rows = index.meta.path, #index
  for _, one in ipairs(survey.dropped) do
    one.file = index:row(one.example).file
  end
  return survey
end

local Open = {}
Open.__index = Open

--- What plans of a recipe's buckets share.
---@param settings table  baked, of one stage
---@param given table     mesh: moonreel.plan.Mesh; compiled: moonreel.plan.Compiled of its machine,
---   which other plans may share; as_is: true where the mesh already says what is sharded; unsent:
---   true where it is not asked what ranks send of the state, which takes a graph
---@return table open     settings, mesh, models, table (all buckets of the recipe's), assumed
function plan.open(settings, given)
  check(settings)
  local mesh, assumed = given.mesh, {}
  if not given.as_is then
    mesh, assumed = mesh:of(settings)
  end
  local models = blame.record(settings, "model", given.compiled.of, given.compiled, settings,
    mesh.ranks, mesh.layers, mesh.sequence * mesh.layers)
  lengths.check_buckets(settings, models.pipe.autoencoder)
  conditions.check(settings, models.pipe)
  if models.job == "extract" then
    about.check(settings, models.pipe)
  end
  mesh:check(settings, models.pipe.model.config.num_heads)
  local buckets_here = buckets_of_table(settings)
  local shares, update = given.compiled:share(settings, models, mesh,
    not given.unsent and buckets_here[1] or nil)
  return setmetatable({ settings = settings, mesh = mesh, models = models, assumed = assumed,
    compiled = given.compiled, table = buckets_here, shares = shares,
    update = update, choices = {}, memory = mesh.machine.memory_bytes,
    fixed = fixed_bytes(settings, mesh, models, shares) }, Open)
end

--- The same in a part of the machine's memory: what recomputes is chosen for that.
---@param memory number  bytes of one rank
---@return table open
function Open:within(memory)
  return setmetatable({ memory = memory, choices = {} }, { __index = self })
end

--- The recipe's buckets, of each resolution and length that with most tokens.
---@param list table[]|nil  those of an index; nil: all of the recipe's table
---@return table[]
function Open:buckets(list)
  local s = self.settings
  return largest_aspects(self.models, list or self.table, s.tail == "carry" and s.epochs ~= 1)
end

-- what recomputes in one bucket, where the settings leave that open
local function choose(self, b)
  local function step_of(choice)
    return self.compiled:rank_step(self.settings, self.models, self.mesh, b, choice)
  end
  local choices = recompute.new(compiled.blocks(self.settings, self.models, b),
    function(choice)
      local step = step_of(choice)
      return step.memory.arena, step.again
    end)
  return choices:first(function(choice)
    return self:held(b, step_of(choice)).total <= self.memory
  end)
end

-- the same in all buckets: what the one that needs most does
local function choose_for_all(self)
  local most, choice = -1, nil
  for _, b in ipairs(self:buckets()) do
    local one, n = choose(self, b)
    if n > most then
      most, choice = n, one
    end
  end
  return choice
end

--- What recomputes in a bucket where the settings leave that open: the fewest blocks with which it
-- fits; of ranks that share weights in all buckets alike, as in a run.
---@param b table  resolution, frames, height, width, batch
---@return integer[]|boolean|nil choice  of moonreel.trainer.recompute; nil: the settings say it
function Open:choice(b)
  local s = self.settings
  if s:plain "grad_ckpt_settings" ~= "auto" or self.models.job then
    return nil
  end
  local alike = self.mesh.zero >= 3
  local key = alike and "all" or ("%s %d"):format(plan.bucket_name(b), b.batch)
  if self.choices[key] == nil then
    self.choices[key] = alike and choose_for_all(self) or choose(self, b)
  end
  return self.choices[key]
end

--- The micro-step of a bucket, as a rank of the mesh runs it.
---@param b table  resolution, frames, height, width, batch
---@return table step  of moonreel.plan.compiled rank_step
function Open:step(b)
  return self.compiled:rank_step(self.settings, self.models, self.mesh, b, self:choice(b))
end

--- Parts of a bucket's micro-step.
---@param b table
---@param step table  of Open:step, of these settings or of others
---@return table      seconds: encode, forward, recompute, backward, exchange, micro: all of them
function Open:micro(b, step)
  return micro_of(self.mesh, self.models, step, exchange_of(self.settings, self.mesh,
    self.models, b, step))
end

--- Seconds of an optimizer step of a bucket.
---@param b table
---@param step table   as Open:micro takes it
---@return table seconds, table schedule
function Open:seconds(b, step)
  return seconds_of(self.settings, self.mesh, self.models, step, exchange_of(self.settings,
    self.mesh, self.models, b, step))
end

--- Least seconds of an optimizer step: its micro-steps on the slowest rank.
---@param micro number  least seconds of a micro-step
---@return number
function Open:least(micro)
  return self.mesh:rounds(self.settings) * micro * slowest_of(self.mesh.ranks)
end

--- What one rank holds while a bucket runs.
---@param b table
---@param step table   as Open:micro takes it
---@param all? table   of the buckets of another table, that stand in for the recipe's: slots and
---   graphs (bytes of their programs), slabs (bytes for the largest batch)
---@return table held  bytes by kind, total, fits; kept: slots and graphs of its program; slabs
function Open:held(b, step, all)
  local own = slab_bytes(self.settings, { b })
  -- batches of this bucket may be larger than the table's, where a larger one is looked for
  self.slabs = self.slabs or slab_bytes(self.settings, self.table)
  self.fixed.slabs = math.max(all and all.slabs or self.slabs, own)
  local held = { bytes = bytes_of(self.fixed, step, self.update), slabs = own,
    above_buffer = above_buffer(self.settings, step),
    kept = { slots = slots_of(step.memory), graphs = graphs_of(step.memory) } }
  if all then
    local bytes, slots, graphs = held.bytes, beside(held.kept, all, self.settings)
    bytes.slots, bytes.graphs = bytes.slots + math.ceil(slots), bytes.graphs + math.ceil(graphs)
    bytes.device, bytes.host = sum(bytes, "device"), sum(bytes, "host")
  end
  settle(held, self.mesh.machine)
  return held
end

--- Elements that ranks send each other at once.
---@return integer
function Open:bucket_elements()
  return bucket_elements(self.settings, self.mesh, self.models)
end

--- One bucket planned.
---@param b table  resolution, frames, height, width, batch
---@return table row  with bytes, total, fits, seconds, share_of_peak, live, ops, useful, workspace;
---   sent: bytes that a rank tells others in a step; figures: of the machine, that decide the step;
---   decode_cores: of the host for each rank, for sources as large as those of the index, without
---   one as large as the bucket; recomputes: of Open:choice; copies, copies_wait: of
---   moonreel.plan.copies
function Open:row(b)
  local mesh, models = self.mesh, self.models
  local step = self:step(b)
  local held = self:held(b, step)
  local row = { resolution = b.resolution, frames = b.frames, height = b.height, width = b.width,
    batch = b.batch, tokens = tokens_of(models, b), live = step.live, ops = step.ops,
    profile = step.profile, copies = step.copies, copies_wait = step.copies_wait,
    recomputes = self:choice(b), bytes = held.bytes, kept = held.kept, useful = step.useful,
    workspace = step.memory.workspace, above_buffer = held.above_buffer }
  row.seconds, row.schedule = self:seconds(b, step)
  row.figures = figures.of(mesh, mesh:rounds(self.settings), step, models.update,
    row.seconds)
  row.sent = self.shares.sent + mesh:rounds(self.settings) * row.seconds.exchange_bytes
  row.share_of_peak = share_of_peak(mesh, models, step, row.seconds)
  row.decode_cores = decode_cores(self.settings, mesh, b, row.seconds.step)
  settle(row, mesh.machine)
  return row
end

-- notes of lengths of the table that no sample of an epoch enters
local function empty_notes(settings, all, survey)
  local entered, notes = {}, {}
  for _, b in ipairs(survey.buckets) do
    entered[b.resolution .. " " .. b.frames] = true
  end
  for _, b in ipairs(settings.allow_empty_buckets and {} or all) do
    local key = b.resolution .. " " .. b.frames
    if not entered[key] then
      notes[#notes + 1] = ("bucket_config.%s[%d]: no sample of the first epoch enters it, and a "
        .. "run refuses what none can enter; try: leave it out, or allow_empty_buckets = true")
        :format(b.resolution, b.frames)
    end
    entered[key] = true
  end
  return notes
end

--- Plan a recipe.
---@param settings table  baked, of one stage
---@param given table     as plan.open; survey: of plan.survey, or nil: every bucket of the recipe's
---   table
---@return table plan  name, recipe, hash, mesh, dtype, trained, parameters, buckets (as Open:row
---   gives them), largest (the bucket with most bytes), slowest (whose step takes longest), shares
---   (of Compiled:share), notes
function plan.of(settings, given)
  local open, survey = plan.open(settings, given), given.survey
  local list = open:buckets(survey and survey.buckets)
  if #list == 0 then
    blame.raise(settings, "bucket_config", "MR_E_DATA", "no sample fits any bucket%s",
      survey and ": " .. plan.dropped_text(survey.dropped) or "")
  end
  local out, largest, slowest, samples, batches, carried = {}, nil, nil, 0, 0, 0
  for i, b in ipairs(list) do
    local row = open:row(b)
    if survey then
      row.samples, row.batches = b.samples, b.batches
      samples, batches = samples + b.samples, batches + b.batches
      carried = carried + b.carried
    end
    out[i] = row
  end
  local mesh, models = open.mesh, open.models
  local programs = keep_others(out, settings, mesh.machine)
  for _, row in ipairs(out) do
    largest = (not largest or row.total > largest.total) and row or largest
    slowest = (not slowest or row.seconds.step > slowest.seconds.step) and row or slowest
  end
  local notes = notes_of(mesh, models, #open.table > #list and not survey, guessed_ops(out))
  table.move(open.assumed, 1, #open.assumed, #notes + 1, notes)
  local assumed = figures.assumed(slowest.figures)
  notes[#notes + 1] = assumed and assumed .. "; try: --why, which has all of them"
  if not survey and slowest.decode_cores > 0 then
    notes[#notes + 1] = "decode cores: sources are assumed to be as large as their bucket, larger "
      .. "ones take more; try: --data NAME.mrx, whose sources are counted"
  end
  notes[#notes + 1] = unread_note(settings)
  local empty = survey and empty_notes(settings, open.table, survey) or {}
  table.move(empty, 1, #empty, #notes + 1, notes)
  if programs then
    notes[#notes + 1] = ("programs of all buckets have no room beside the largest; try: "
      .. "programs_bytes = %.0f"):format(programs // 1e6 * 1e6)
  end
  return { name = settings.name or tostring(settings.recipe), recipe = tostring(settings.recipe),
    hash = settings.hash, buffer_size = settings.grad_ckpt_buffer_size, mesh = mesh,
    dtype = models.dtype, trained = models.trained, parameters = models.all,
    renders = renders.of(settings, models, mesh, given.compiled:device()),
    shares = open.shares, saved_bytes = models.saved, buckets = out, largest = largest,
    slowest = slowest, notes = notes, survey = survey, samples = survey and samples,
    batches = survey and batches, carried = survey and carried }
end

--- The bucket as people name it: 144p 51x144x256.
---@param b table
---@return string
function plan.bucket_name(b)
  return ("%s %dx%dx%d"):format(b.resolution, b.frames, b.height, b.width)
end

--- Rows of an index that enter no bucket, in words.
---@param dropped table[]  {why, rows, file}
---@return string
function plan.dropped_text(dropped)
  local parts = {}
  for _, one in ipairs(dropped) do
    parts[#parts + 1] = ("%d samples, %s (such as %s)"):format(one.rows, one.why, one.file)
  end
  return table.concat(parts, "; ")
end

return plan
