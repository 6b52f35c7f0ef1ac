--- The data of a run: the index, the loader at the run's position, the cache for values that the
-- run does not encode itself, and the number of micro-batches in a step.
-- @module moonreel.trainer.samples
local base = require "moonreel.core.base"
local about = require "moonreel.cache.about"
local blame = require "moonreel.settings.blame"
local cache = require "moonreel.cache"
local buckets = require "moonreel.data.buckets"
local data = require "moonreel.data"
local place = require "moonreel.data.place"
local sources = require "moonreel.settings.sources"
local feed = require "moonreel.trainer.feed"
local gpu = require "moonreel.trainer.gpu"
local opensora20 = require "moonreel.data.opensora20"
local optim = require "moonreel.optim"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local samples = {}

--- The index that a data path means: the path itself, or the index next to a table of clips.
---@param path string  dataset.data_path
---@return string index
---@return string|nil input  the table, if the index has to be built
function samples.index_of(path)
  if path:find("%.mrx/?$") or base.exists(path .. "/data.sum") then
    return path
  end
  local index = path:gsub("/+$", ""):gsub("%.[%w]+$", "") .. ".mrx"
  if base.exists(index) then
    return index
  end
  return index, path
end

-- does a path have an index or a table?
local function is_there(path)
  local index, input = samples.index_of(path)
  return base.exists(input or index)
end

-- Finds a path from the working directory, or from the directory in which the continued run began:
-- a run may be moved, and continued from anywhere.
local function find(r, path)
  local began = r.found and r.found.run and not is_there(path) and run.began_in(r.found.run)
  if not began or path:sub(1, 1) == "/" then
    return path
  end
  local there = began .. "/" .. path
  if not is_there(there) then
    base.raise("MR_E_DATA", ("'%s' is neither here, in %s, nor where the run began, in %s; try: "
      .. "data_path=PATH with the present path of the index"):format(path, process.real_path ".",
      began))
  end
  return there
end

-- opens the index of a path; builds it first if there is only its table
local function open_path(r, path)
  local index, input = samples.index_of(find(r, path))
  if input then
    r.progress:say(("building the index %s"):format(index))
    data.ingest(input, index)
  end
  return data.open(index)
end

--- Opens the index of a run that reads one.
---@param r table     settings, progress
---@param held boolean|nil  true: only the samples that are held back, if there are any; otherwise
---   all samples
---@return mr.Index
function samples.open_index(r, held)
  local list = sources.of(r.settings)
  if #list > 1 or list[1].name ~= "" then
    base.raise("MR_E_RECIPE", ("dataset.sources: this command reads one index; try: moonreel "
      .. "data merge, dataset.sources=none, and dataset.data_path=%s"):format(list[1].path))
  end
  list[1].index, r.sources = open_path(r, list[1].path), list
  if held and list[1].hold_back then
    list[1].held = true
    r.notes[#r.notes + 1] = place.pick(list[1])
  end
  return list[1].index
end

-- opens the sources of a run; the first rank builds missing indexes
local function open_sources(r)
  r.sources = sources.of(r.settings)
  for _, source in ipairs(r.sources) do
    blame.field(r.settings, source.field, function()
      local path = r.team:first(function()
        source.index = open_path(r, source.path)
        return {source.index.meta.path}
      end)[1]
      source.index = r:keep(source.index or data.open(path))
      local meta = source.index.meta
      r.team:same(meta.fp_order, function(theirs)
        base.raise("MR_E_DATA", ("%s: the index holds other samples here (%s) than on rank 0 (%s); "
          .. "try: the same index on all hosts"):format(path, meta.fp_order, theirs))
      end)
      r.notes[#r.notes + 1] = place.pick(source)
    end)
  end
  r.index = r.sources[1].index
end

--- The fingerprint of the data of a run: of its index, or of all of its sources.
---@return string
function samples.fingerprint(r)
  local all = {}
  for i, source in ipairs(r.sources) do
    all[i] = source.index.meta.fp_order
  end
  return table.concat(all, " ")
end

-- The field that a refusal of the loader is about: the entry of bucket_config that it names, or the
-- first entry if it is about all.
local function refused_field(s, refusal)
  local text = tostring(refusal)
  local name, frames = text:match("^bucket_config%.(.-)%[(%w+)%]: ")
  if name then
    return ("bucket_config.%s.%s"):format(name, frames)
  elseif text:find("no sample fits any bucket", 1, true) then
    for _, leaf in ipairs(s:leaves()) do
      if leaf.keys[1] == "bucket_config" then
        return leaf.path
      end
    end
  end
  local source = text:match("^sources%.([%w_.-]+)")
  return source and ("dataset.sources.%s.data_path"):format(source) or sources.field(s)
end

-- indexes by their numbers in batches
local function indexes_of(r)
  local list = {}
  for i, source in ipairs(r.sources or { { index = r.index } }) do
    list[i] = source.index
  end
  return list
end

-- refuses fields of a data set that the loader cannot apply
local function check_dataset(s, loader)
  local how = s.dataset.transform_name
  local function refuse(field, form, ...)
    blame.raise(s, "dataset." .. field, "MR_E_RECIPE", "dataset." .. field .. form, ...)
  end
  if how == "rand_size_crop" then
    refuse("transform_name", " = rand_size_crop is not supported, because a sample has the size "
      .. "of its bucket; try: resize_crop")
  elseif (s.dataset.fps_max or 0) > 0 and buckets.reference(s) ~= "opensora-2.0" then
    refuse("fps_max", " = %g: frames are skipped only in the order of opensora-2.0; try: compat = "
      .. "\"opensora-2.0\" and order = \"reference\", or frame_interval", s.dataset.fps_max)
  end
  for _, b in ipairs(how == "center" and loader:plan().buckets or {}) do
    if b.height ~= b.width then
      refuse("transform_name", " = center cuts squares, but the bucket %s has clips of %d x %d; "
        .. "try: resize_crop, which gives the same for squares", b.resolution, b.height, b.width)
    end
  end
end

--- Opens a loader for settings.
---@param r table        settings, index
---@param options table  for data.loader, where they override the settings: epochs, state,
---   excluded, quarantine, ...
---@param own? boolean    true: every sample once, even if the run uses the order of a reference
---@return mr.Loader
function samples.open_loader(r, options, own)
  local s = r.settings
  local o = buckets.of(s)
  o.reference = not own and o.reference or nil
  o.index, o.sources = r.index, r.sources
  o.seed, o.threads, o.prefetch = s.seed, s.num_workers, s.prefetch
  o.allow_empty_buckets = s.allow_empty_buckets
  o.says = opensora20.teller(s, indexes_of(r))
  o.tail, o.lpt = s.tail, s.share_out == "lpt"
  o.virtual_ranks = o.reference and r.step_ranks or o.lpt and 1 or s.virtual_ranks
  o.node = r.device and gpu.node(r.device)
  o.local_ranks = require("moonreel.comm.place").find().local_size
  for name, value in pairs(options) do
    o[name] = value
  end
  local good, loader = pcall(data.loader, o)
  if good then
    local fits, problem = pcall(check_dataset, s, loader)
    if not fits then
      loader:close()
      error(problem, 0)
    end
    return loader
  end
  return blame.field(s, refused_field(s, loader), error, loader, 0)
end

-- Options of a loader that continues at the position of a checkpoint; each source continues by
-- itself.
local function place_of(r, manifest)
  local s = r.settings
  local was = manifest.settings
    and require("moonreel.settings").from_json(manifest.settings, r.source and r.source.path
    or r.dir) or s
  -- one rank reads for all which samples the epochs have trained
  local found = r.team:first(function()
    return place.all{sources = r.sources, rule = buckets.of(s), seed = s.seed, folder = r.dir,
      change = s.data_change,
      state = manifest.sampler, excluded = manifest.excluded,
      source = r.found and r.found.run or nil,
      blame = function(source, f, ...) return blame.field(s, source.field, f, ...) end,
      was = {rule = buckets.of(was), of = function(name)
        for _, source in ipairs(sources.of(was)) do
          if source.name == name then
            return {path = (samples.index_of(source.path)), quantiles = source.quantiles,
              hold_back = source.hold_back}
          end
        end
      end}}
  end)
  table.move(found.notes, 1, #found.notes, #r.notes + 1, r.notes)
  for _, source in ipairs(r.sources) do
    source.seen, source.epoch = found.seen[source.name], found.epoch[source.name]
  end
  return {state = found.state, excluded = found.excluded}
end

-- The position of the loader after the batches of `steps` steps, and the number of samples in
-- these. One rank goes through them for all, without decoding.
local function pass_over(r, o, steps)
  return r.team:first(function()
    local loader <close> = samples.open_loader(r, {state = o.state, excluded = o.excluded,
      epochs = r.settings.epochs, quarantine = r.dir .. "/quarantine.jsonl", threads = 1,
      blind = true})
    local left_out = 0
    for _ = 1, steps * r.micros do
      local batch = loader:next()
      if not batch then
        break
      end
      left_out = left_out + batch.n
      loader:release(batch)
    end
    return {state = loader:state(), excluded = loader:excluded(), left_out = left_out}
  end)
end

-- Options of the loader that begins with start_step of start_epoch; without these fields at the
-- beginning.
local function start_of(r)
  local s, o = r.settings, {}
  if not r.scratch or not (s.start_step or s.start_epoch) then
    return o
  end
  local epoch = s.start_epoch or blame.field(s, "start_step", place.epoch,
    r.source.manifest.sampler)
  if s.epochs > 0 and epoch >= s.epochs then
    blame.raise(s, "start_epoch", "MR_E_USAGE", "start_epoch = %d, but the run has epochs 0 to %d; "
      .. "try: epochs = %d", epoch, s.epochs - 1, epoch + 1)
  end
  r.start = {epoch = epoch, step = s.start_step or 0}
  for _, source in ipairs(r.sources) do
    source.epoch = epoch
  end
  if r.start.step > 0 then
    o = pass_over(r, o, r.start.step)
    for _, source in ipairs(r.sources) do
      source.epoch = nil
    end
  end
  return {state = o.state, excluded = o.excluded}
end

--- Starts decoding at the position of a checkpoint with this manifest; nil: at start_epoch and
-- start_step, or with the first epoch.
---@param r mr.Run
---@param manifest table|nil
---@param skip integer|nil  skip the batches of this many steps from there on
---@return integer left_out  the samples in these
function samples.loader(r, manifest, skip)
  local o, left_out = manifest and place_of(r, manifest) or start_of(r), 0
  if skip and skip > 0 then
    local place_behind = pass_over(r, o, skip)
    o.state, o.excluded, left_out = place_behind.state, place_behind.excluded,
      place_behind.left_out
  end
  o.epochs, o.quarantine = r.settings.epochs, r.dir .. "/quarantine.jsonl"
  -- of the ranks that share a batch one decodes it
  o.blind = r.cached.latents ~= nil or not r.mesh.leads
  if r.loader then
    r.loader:close()
  end
  -- ranks that begin micro-steps together take one of each round, so they take turns
  if r.reported and r.micros > r.mesh.data then
    o.lpt = false
  end
  o.part, o.parts, o.group = r.mesh.at, r.mesh.data, r.micros
  r.loader = r:keep(samples.open_loader(r, o))
  return left_out
end

-- opens the cache of inputs that the run does not encode itself; it must come from the same sources
-- and encoders
local function open_cache(r)
  local s, want = r.settings, {}
  for kind in pairs(r.cached) do
    want[kind] = about.of(s, kind, r.dtype, r.pipe.text)
  end
  local path = s.cache or cache.path_of(r.index.meta.path)
  local held = r:keep(blame.field(s, r.cached.latents or r.cached.text, cache.open, path, want))
  for _, kind in ipairs(held.unchecked) do
    r.notes[#r.notes + 1] = ("%s: its %s cannot be checked, because the weights that made them "
      .. "are not on this host"):format(
      path, kind)
  end
  -- samples that could not be read for the cache are left out of the same epochs here
  r.team:first(function()
    local list = r.dir .. "/quarantine.jsonl"
    local text = r.cached.latents and held:quarantine() or ""
    if text ~= "" and not base.exists(list) then
      base.replace_file(list, text)
    end
    return {}
  end)
  return held
end

--- The number of micro-batches in a step: `accumulate` for each rank for which the run was made. A
-- run that continues with more or fewer ranks keeps the number, so that its steps stay the same.
function samples.count_micros(r)
  local s, resumed = r.settings, r.found and not r.scratch and r.source.manifest
  local before = resumed and resumed.run_state
  r.step_ranks = s.virtual_ranks > 1 and s.virtual_ranks or before and (before.step_ranks or 1)
    or r.mesh.data
  r.micros = r.step_ranks * s.accumulate
  if r.micros < r.mesh.data then
    r.notes[#r.notes + 1] = ("%d of %d ranks have nothing to do: a step has %d "
      .. "micro-batches (made for %d ranks, accumulate = %d); try: virtual_ranks=%d"):format(
      r.mesh.data - r.micros, r.mesh.data, r.micros, r.step_ranks, s.accumulate, r.mesh.data)
  end
end

-- the number of epochs after which a run repeats its draws
local function drawn_epochs(r)
  local s = r.settings
  local epochs, repeats = s.epochs > 0 and s.epochs or math.huge, s.dataset.draw_epochs
  if s.steps > 0 then
    epochs = math.min(epochs, -(-s.steps * r.micros // r.plan.batches))
  end
  return math.tointeger(repeats > 0 and math.min(repeats, epochs) or epochs)
end

--- Builds the update of a step.
function samples.open_update(r)
  r.update = optim.new(r.exec, r.pipe.params, r.ranks, r.reduced,
    {rule = r.rule, since = r.since})
end

--- Opens the index and starts decoding at the run's position.
function samples.open(r)
  local s = r.settings
  open_sources(r)
  local resumed = r.found and not r.scratch and r.source.manifest
  if next(r.cached) then
    if #r.sources > 1 then
      blame.raise(s, sources.field(s), "MR_E_RECIPE", "dataset.sources has %d sources, but a cache "
        .. "belongs to one index; try: moonreel data merge, or cached = false", #r.sources)
    end
    if s.tail == "carry" then
      blame.raise(s, "tail", "MR_E_RECIPE", "tail = \"carry\": carried samples are drawn in "
        .. "another epoch than the one in the cache; try: tail = \"short\", or cached = false")
    end
    r.cache = open_cache(r)
  end
  samples.open_update(r)
  samples.loader(r, resumed or nil)
  r.plan = r.loader:plan()
  if r.plan.batches < r.micros then
    r.notes[#r.notes + 1] = ("a step has %d micro-batches, but an epoch has only %d, so a step "
      .. "trains samples several times; try: fewer ranks, smaller batches in bucket_config, more "
      .. "clips"):format(r.micros, r.plan.batches)
  end
  if r.cached.latents then
    blame.field(s, r.cached.latents, r.cache.check_epochs, r.cache, drawn_epochs(r))
  end
  r.feed = feed.new(s, r.pipe, {codec = r.codec, latents = r.cached.latents and r.cache,
    text = r.cached.text and r.cache, mesh = r.mesh})
end

return samples
