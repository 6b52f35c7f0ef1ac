--- Plans a recipe's run on a mesh of GPUs before it runs: bytes by kind, seconds by part, and with
-- an index the samples of each epoch. Bytes are those of the layouts of the trainer's own graphs.
-- @module moonreel.plan
local about = require "moonreel.cache.about"
local blame = require "moonreel.settings.blame"
local buckets = require "moonreel.data.buckets"
local coded = require "moonreel.plan.coded"
local compiled = require "moonreel.plan.compiled"
local conditions = require "moonreel.trainer.conditions"
local figures = require "moonreel.plan.figures"
local held = require "moonreel.plan.held"
local lengths = require "moonreel.codec.lengths"
local pipeline = require "moonreel.models.pipeline"
local readers = require "moonreel.settings.readers"
local recompute = require "moonreel.trainer.recompute"
local renders = require "moonreel.plan.renders"
local launched = require "moonreel.trainer.check"
local seconds = require "moonreel.plan.seconds"

local plan = {}

--- Sizes of communication buckets that are tried, in 2^20 elements, and the speed-up above which a
-- change is suggested.
plan.bucket_sizes, plan.notable = { 8, 16, 32, 64, 128, 256, 512, 1024 }, 1.001

-- the most names of ops or fields in one note
local MOST_NAMED = 6

-- ---- buckets ----

-- of the aspects of one resolution and length only the one with the most tokens is compiled: the
-- others have the same number or slightly fewer
local function largest_aspects(models, list, carries)
  local by, out = {}, {}
  for _, b in ipairs(list) do
    b.tokens = seconds.tokens(models, b)
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

--- The recipe's bucket table in the form of the core, short lengths first.
---@param settings table
---@return table[] resolutions  from moonreel.data.buckets resolve
function plan.resolutions(settings)
  local list = buckets.resolve(buckets.config(settings), settings:plain("resolutions"),
    nil, settings.compat, settings.ae_spatial_compression)
  for _, r in ipairs(list) do
    table.sort(r.lengths, function(a, b) return a[1] < b[1] end)
  end
  return list
end

-- every bucket of the recipe's table that can take samples
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

-- ---- a recipe ----

-- refuses settings that cannot be planned
local function check(settings)
  if settings.job == "train" then
    launched.has_end(settings)
  elseif settings.job == "reconstruct" then
    launched.has_autoencoder(settings)
  end
  for _, record in ipairs { "vae", "text_encoder" } do
    if not settings[record].type and not pipeline.reconstructs(settings) then
      blame.raise(settings, record .. ".type", "MR_E_RECIPE", "%s.type is not set: training on "
        .. "stored features cannot be planned yet; try: a recipe with both encoders", record)
    end
  end
  if not settings.bucket_config then
    blame.raise(settings, "bucket_config", "MR_E_RECIPE", "bucket_config is not set, so there are "
      .. "no shapes to plan; try: %s, or the lengths of your clips", buckets.EXAMPLE)
  end
  local unknown = require "moonreel.settings.resolutions"(settings:leaves())[1]
  if unknown then
    blame.raise(settings, unknown.path, "MR_E_RECIPE", "%s", unknown.text)
  end
end

-- jobs that run in one process on one device; an extraction has parts for several
local ALONE <const> = { eval_loss = true, reconstruct = true }

--- Does the job of these settings use one device, however many there are?
---@param settings table
---@return boolean
function plan.is_alone(settings) return ALONE[settings.job] or false end

-- refuses several GPUs for a job that uses one
local function check_alone(settings, mesh)
  if plan.is_alone(settings) and mesh.ranks > 1 then
    blame.raise(settings, "job", "MR_E_RECIPE", "job = %s runs on one GPU, not on %s; try: --gpus "
      .. "%s", settings.job, mesh:text(), mesh.machine.name)
  end
end

-- notes about the origin of the figures
local function notes_of(mesh, models, aspects, guessed)
  local notes = {}
  local function note(form, ...) notes[#notes + 1] = form:format(...) end
  for _, line in ipairs(models.encoders.notes) do
    note("%s", line)
  end
  if mesh.sequence > 1 and mesh.clips then
    note("%d ranks share the %s of a clip", mesh.sequence, mesh.clips)
  elseif mesh.sequence > 1 then
    note("%d ranks share the tokens of a batch and its encoding; all of them have the text",
      mesh.sequence)
  end
  if mesh.layers > 1 then
    note("%d ranks share each layer, and a batch", mesh.layers)
  end
  if aspects then
    note("of each resolution and length only the aspect ratio with the most tokens is planned")
  end
  if mesh.machine.here and mesh.ranks > 1 then
    note("ranks of this machine communicate through its memory: %.3g GB/s are assumed",
      mesh.machine.node.link / 1e9)
  end
  local m = mesh.machine
  if not m.cpu then
    note("%s: the planned workspace is that of plain kernels on one thread", m.name)
  end
  if not m.origin then
    note("%s: rates by %s", m.name, m.source)
  end
  for _, row in ipairs(m.assumed) do
    local value = type(row.value) == "table" and "shares by size" or ("%.4g"):format(row.value)
    -- only clips that are written need that rate
    if models.coder or row.field ~= "encode_rate" then
      note("%s: %s is assumed: %s%s", m.name, row.field, value,
        row.of and (" by its %s"):format(row.of) or "")
    end
  end
  if m.here and not m.slower then
    note("rates from a probe of some milliseconds may be off by a quarter; try: "
      .. "moonreel bench --save mine, then --machine ./mine.lua; for a run: moonreel plan RUN")
  end
  if #guessed > 0 then
    note("%s was measured without %s%s in %s: these have the rates of similar ops", m.name,
      table.concat(guessed, ", ", 1, math.min(#guessed, MOST_NAMED)),
      #guessed > MOST_NAMED and (" and %d others"):format(#guessed - MOST_NAMED) or "",
      models.dtype)
  end
  return notes
end

-- a note about fields that are set although nothing reads them, so that a run refuses them
local function unread_note(settings)
  local names, known = {}, {}
  for _, one in ipairs(readers.missing(settings)) do
    if not known[one.what] then
      known[one.what], names[#names + 1] = true, one.what
    end
  end
  return #names > 0 and (
    "a run refuses fields that nothing reads yet: %s%s; try: leave them out"):format(
    table.concat(names, ", ", 1, math.min(#names, MOST_NAMED)), #names > MOST_NAMED
      and (" and %d others"):format(#names - MOST_NAMED) or "") or nil
end

-- notes about clips that go through an autoencoder and back
local function coder_notes(open, largest)
  local notes = { ("files are assumed to take %g bytes a pixel, and pictures %g"):format(
    coded.VIDEO_BYTES, coded.PICTURE_BYTES) }
  notes[2] = open.models.coder:compare(largest)
  return notes
end

-- names of the ops of all buckets for which a measured machine has no rate
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

--- Counts the samples of an index in an epoch, by bucket and drop.
---@param settings table       baked
---@param index moonreel.Index
---@param epoch integer        from 0
---@param members? mr.Subset   only these samples
---@param ranks? integer       of a run (1): the drops of a reference depend on them
---@return table survey  from mr.BucketRule: buckets, each with its samples; dropped {why, rows,
---   example}; and index: its path, rows: all of its samples
function plan.survey(settings, index, epoch, members, ranks)
  local how = buckets.of(settings)
  -- this job takes every sample once, also of a recipe with the order of a reference
  how.reference = settings.job ~= "reconstruct" and how.reference or nil
  local rule = buckets.rule(how)
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

--- Opens what the plans of a recipe's buckets share.
---@param settings table  baked, of one stage
---@param given table     mesh: moonreel.plan.Mesh; compiled: moonreel.plan.Compiled of its machine,
---   which other plans may share; as_is: true if the mesh already says what is sharded; unsent:
---   true if the bytes that ranks send of the state are not needed, which takes a graph
---@return table open     settings, mesh, models, table (all buckets of the recipe), assumed
function plan.open(settings, given)
  check(settings)
  local mesh, assumed = given.mesh, {}
  check_alone(settings, mesh)
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
  if not models.coder then
    mesh:check(settings, models.pipe.model.config.num_heads)
  end
  local buckets_here = buckets_of_table(settings)
  local shares, update = given.compiled:share(settings, models, mesh,
    not given.unsent and buckets_here[1] or nil)
  return setmetatable({ settings = settings, mesh = mesh, models = models, assumed = assumed,
    compiled = given.compiled, table = buckets_here, shares = shares,
    update = update, choices = {}, memory = mesh.machine.memory_bytes,
    fixed = held.fixed(settings, mesh, models, shares) }, Open)
end

--- The same in a part of the machine's memory, for which the recomputation is chosen.
---@param memory number  bytes of one rank
---@return table open
function Open:within(memory)
  return setmetatable({ memory = memory, choices = {} }, { __index = self })
end

--- The recipe's buckets; of each resolution and length the one with the most tokens.
---@param list table[]|nil  those of an index; nil: all of the recipe's table
---@return table[]
function Open:buckets(list)
  local s = self.settings
  return largest_aspects(self.models, list or self.table, s.tail == "carry" and s.epochs ~= 1)
end

-- chooses the recomputation of one bucket, if the settings leave it open
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

-- one choice for all buckets: that of the bucket that needs most
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

--- The recomputation of a bucket, if the settings leave it open: the fewest blocks with which it
-- fits. Ranks that share weights use one choice for all buckets, as in a run.
---@param b table  resolution, frames, height, width, batch
---@return integer[]|boolean|nil choice  of moonreel.trainer.recompute; nil: the settings decide
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

--- The micro-step of a bucket on a rank of the mesh.
---@param b table  resolution, frames, height, width, batch
---@return table step  from moonreel.plan.compiled rank_step
function Open:step(b)
  return self.compiled:rank_step(self.settings, self.models, self.mesh, b, self:choice(b))
end

--- Parts of a bucket's micro-step.
---@param b table
---@param step table  from Open:step, of these settings or of others
---@return table      seconds: encode, forward, recompute, backward, exchange, micro: their sum
function Open:micro(b, step) return seconds.micro(self, b, step) end

--- Seconds of an optimizer step of a bucket.
---@param b table
---@param step table   as Open:micro takes it
---@return table parts, table schedule
function Open:seconds(b, step) return seconds.of(self, b, step) end

--- Lower bound of the seconds of an optimizer step: its micro-steps on the slowest rank.
---@param micro number  lower bound for a micro-step
---@return number
function Open:least(micro)
  return self.mesh:rounds(self.settings) * micro * seconds.slowest(self.mesh.ranks)
end

--- Bytes of one rank while a bucket runs.
---@param b table
---@param step table   as Open:micro takes it
---@param all? table   of the buckets of another table, in place of the recipe's: slots and graphs
---   (bytes of their programs), slabs (bytes for the largest batch)
---@return table held  bytes by kind, total, fits; kept: slots and graphs of its program; slabs
function Open:held(b, step, all) return held.of(self, b, step, all) end

--- The number of elements that ranks send each other at once.
---@return integer
function Open:bucket_elements()
  return seconds.bucket_elements(self.settings, self.mesh, self.models)
end

--- The plan of one bucket.
---@param b table  resolution, frames, height, width, batch
---@return table row  with bytes, total, fits, seconds, share_of_peak, live, ops, useful, workspace;
---   sent: bytes that a rank sends to others in a step; figures: of the machine, that decide the
---   step; decode_cores: of the host for each rank, for sources of the size in the index, or
---   without an index of the size of the bucket; recomputes: from Open:choice; copies, copies_wait:
---   from moonreel.plan.copies
function Open:row(b)
  local mesh, models = self.mesh, self.models
  local step = self:step(b)
  local holds = self:held(b, step)
  local row = { resolution = b.resolution, frames = b.frames, height = b.height, width = b.width,
    batch = b.batch, tokens = seconds.tokens(models, b), live = step.live, ops = step.ops,
    profile = step.profile, copies = step.copies, copies_wait = step.copies_wait,
    recomputes = self:choice(b), bytes = holds.bytes, kept = holds.kept, useful = step.useful,
    workspace = step.memory.workspace, above_buffer = holds.above_buffer,
    total = holds.total, fits = holds.fits }
  row.seconds, row.schedule = self:seconds(b, step)
  row.figures = figures.of(mesh, mesh:rounds(self.settings), step, models.update,
    row.seconds)
  row.sent = self.shares.sent + mesh:rounds(self.settings) * row.seconds.exchange_bytes
  row.share_of_peak = seconds.share_of_peak(mesh, models, step, row.seconds.micro)
  row.decode_cores = seconds.decode_cores(self.settings, mesh, b, row.seconds.step)
  row.written = models.coder and models.coder:file_bytes(b)
  return row
end

-- notes about lengths of the table that no sample of an epoch enters
local function empty_notes(settings, all, survey)
  local entered, notes = {}, {}
  for _, b in ipairs(survey.buckets) do
    entered[b.resolution .. " " .. b.frames] = true
  end
  for _, b in ipairs(settings.allow_empty_buckets and {} or all) do
    local key = b.resolution .. " " .. b.frames
    if not entered[key] then
      notes[#notes + 1] = ("bucket_config.%s[%d]: no sample of the first epoch enters it; a "
        .. "run refuses lengths without samples; try: leave it out, or allow_empty_buckets = true")
        :format(b.resolution, b.frames)
    end
    entered[key] = true
  end
  return notes
end

--- Plans a recipe.
---@param settings table  baked, of one stage
---@param given table     as in plan.open; survey: from plan.survey; nil: every bucket of the
---   recipe's table
---@return table plan  name, recipe, hash, mesh, job (other than training), writes (does the job
---   write clips?), dtype, trained, parameters, buckets (from Open:row), largest (the bucket with
---   the most bytes), slowest (the bucket with the longest step), shares (from Compiled:share),
---   notes
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
  local programs = held.keep_others(out, settings, mesh.machine)
  for _, row in ipairs(out) do
    largest = (not largest or row.total > largest.total) and row or largest
    slowest = (not slowest or row.seconds.step > slowest.seconds.step) and row or slowest
  end
  local notes = notes_of(mesh, models, #open.table > #list and not survey, guessed_ops(out))
  table.move(open.assumed, 1, #open.assumed, #notes + 1, notes)
  local assumed = figures.assumed(slowest.figures)
  notes[#notes + 1] = assumed and assumed .. "; try: --why, which lists all of them"
  if not survey and slowest.decode_cores > 0 then
    notes[#notes + 1] = "decode cores: sources are assumed to be as large as their bucket; larger "
      .. "sources need more; try: --data NAME.mrx, which has their sizes"
  end
  notes[#notes + 1] = unread_note(settings)
  for _, note in ipairs(models.coder and coder_notes(open, largest) or {}) do
    notes[#notes + 1] = note
  end
  local empty = survey and empty_notes(settings, open.table, survey) or {}
  table.move(empty, 1, #empty, #notes + 1, notes)
  if programs then
    notes[#notes + 1] = ("programs of all buckets do not fit together with the largest; try: "
      .. "programs_bytes = %.0f"):format(programs // 1e6 * 1e6)
  end
  return { name = settings.name or tostring(settings.recipe), recipe = tostring(settings.recipe),
    hash = settings.hash, buffer_size = settings.grad_ckpt_buffer_size, mesh = mesh,
    job = models.job, dtype = models.dtype, trained = models.trained, parameters = models.all,
    writes = models.coder ~= nil, decoders = settings.num_workers,
    renders = renders.of(settings, models, mesh, given.compiled:device()),
    shares = open.shares, saved_bytes = models.saved, buckets = out, largest = largest,
    slowest = slowest, notes = notes, survey = survey, samples = survey and samples,
    batches = survey and batches, carried = survey and carried }
end

--- The name of a bucket: 144p 51x144x256.
---@param b table
---@return string
function plan.bucket_name(b)
  return ("%s %dx%dx%d"):format(b.resolution, b.frames, b.height, b.width)
end

--- Text about the rows of an index that enter no bucket.
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
