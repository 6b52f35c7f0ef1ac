--- What a run trains on: the index, the loader where the run stands, the cache of what it does not
-- encode by itself, how many micro-batches make a step.
-- @module moonreel.trainer.samples
local base = require "moonreel.core.base"
local about = require "moonreel.cache.about"
local blame = require "moonreel.settings.blame"
local cache = require "moonreel.cache"
local buckets = require "moonreel.data.buckets"
local data = require "moonreel.data"
local place = require "moonreel.data.place"
local feed = require "moonreel.trainer.feed"
local optim = require "moonreel.optim"
local ranks = require "moonreel.optim.ranks"

local samples = {}

--- The index a data path means: itself, or the one beside a table of clips.
---@param path string  dataset.data_path
---@return string index
---@return string|nil input  the table, when the index is yet to be built
function samples.index_of(path)
  if path:find("%.mrx/?$") or base.exists(path .. "/data.sum") then
    return path
  end
  local beside = path:gsub("/+$", ""):gsub("%.[%w]+$", "") .. ".mrx"
  if base.exists(beside) then
    return beside
  end
  return beside, path
end

--- The index of a run, built first where there is only its table.
---@param r table     settings, progress
---@return mr.Index
function samples.open_index(r)
  local index, input = samples.index_of(r.settings.dataset.data_path)
  if input then
    r.progress:say(("building the index %s"):format(index))
    data.ingest(input, index)
  end
  return data.open(index)
end

-- the field that a refusal of the loader is about: the entry of bucket_config that it names, or the
-- first one when it speaks of them all
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
  return "dataset.data_path"
end

--- A loader as settings say.
---@param r table        settings, index
---@param options table  of data.loader, which win: epochs, state, excluded, quarantine, ...
---@return mr.Loader
function samples.open_loader(r, options)
  local s = r.settings
  local o = buckets.of(s)
  o.index, o.seed, o.threads, o.prefetch = r.index, s.seed, s.num_workers, s.prefetch
  o.allow_empty_buckets, o.virtual_ranks = s.allow_empty_buckets, s.virtual_ranks
  for name, value in pairs(options) do
    o[name] = value
  end
  local good, loader = pcall(data.loader, o)
  if good then
    return loader
  end
  return blame.field(s, refused_field(s, loader), error, loader, 0)
end

-- options of the loader that goes on where a checkpoint stands
local function place_of(r, manifest)
  local s = r.settings
  local was = manifest.settings
    and require("moonreel.settings").from_json(manifest.settings, r.source and r.source.path
    or r.dir) or s
  -- one rank tells for all what the epoch has trained
  local found = r.team:first(function()
    local options, note = blame.field(s, "dataset.data_path", place.of, {index = r.index,
      rule = buckets.of(s), seed = s.seed, change = s.data_change, folder = r.dir,
      state = manifest.sampler, excluded = manifest.excluded,
      source = r.found and r.found.run or nil,
      was = {rule = buckets.of(was), data_path = was.dataset.data_path
        and samples.index_of(was.dataset.data_path)}})
    return {options = options, note = note}
  end)
  r.notes[#r.notes + 1] = found.note
  return found.options
end

--- Start decoding where a checkpoint stands, whose manifest this is; nil: the first epoch.
function samples.loader(r, manifest)
  local o = manifest and place_of(r, manifest) or {}
  o.epochs, o.quarantine = r.settings.epochs, r.dir .. "/quarantine.jsonl"
  o.blind = r.cached.latents ~= nil
  if r.loader then
    r.loader:close()
  end
  o.part, o.parts, o.group = r.team.rank, r.team.size, r.micros
  r.loader = r:keep(samples.open_loader(r, o))
end

-- the cache of what the run does not encode by itself, made from the same by the same
local function open_cache(r)
  local s, want = r.settings, {}
  for kind in pairs(r.cached) do
    want[kind] = about.of(s, kind, r.dtype)
  end
  local path = s.cache or cache.beside(r.index.meta.path)
  local held = r:keep(blame.field(s, r.cached.latents or r.cached.text, cache.open, path, want))
  for _, kind in ipairs(held.unchecked) do
    r.notes[#r.notes + 1] = ("%s: the weights that made its %s are not here to be compared"):format(
      path, kind)
  end
  -- what could not be read when it was made leaves the epochs that it left there
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

-- How many micro-batches make a step: `accumulate` for each of the ranks that it is made for. A run
-- that goes on by more or fewer ranks keeps them, so that its steps stay the same.
local function count_micros(r, resumed)
  local s, before = r.settings, resumed and resumed.run_state
  local stage = ranks.stage(s)
  if r.team.size > 1 and stage > 1 then
    r.notes[#r.notes + 1] = ("ZeRO %d is trained as ZeRO 1: gradients%s are whole on every rank")
      :format(stage, stage > 2 and " and weights" or "")
  end
  r.step_ranks = s.virtual_ranks > 1 and s.virtual_ranks or before and (before.step_ranks or 1)
    or r.team.size
  r.micros = r.step_ranks * s.accumulate
  if r.micros < r.team.size then
    r.notes[#r.notes + 1] = ("%d of %d ranks have nothing to do: a step is made of %d "
      .. "micro-batches (made for %d ranks, accumulate = %d); try: virtual_ranks=%d"):format(
      r.team.size - r.micros, r.team.size, r.micros, r.step_ranks, s.accumulate, r.team.size)
  end
end

-- epochs in which a run draws its samples anew
local function drawn_epochs(r)
  local s = r.settings
  local epochs, repeats = s.epochs > 0 and s.epochs or math.huge, s.dataset.draw_epochs
  if s.steps > 0 then
    epochs = math.min(epochs, -(-s.steps * r.micros // r.plan.batches))
  end
  return math.tointeger(repeats > 0 and math.min(repeats, epochs) or epochs)
end

--- Open the index and start decoding where the run stands.
function samples.open(r)
  local s = r.settings
  blame.field(s, "dataset.data_path", function()
    -- the first rank builds it where there is none
    local path = r.team:first(function()
      r.index = samples.open_index(r)
      return {r.index.meta.path}
    end)[1]
    r.index = r:keep(r.index or data.open(path))
  end)
  local resumed = r.found and not r.scratch and r.source.manifest
  if next(r.cached) then
    r.cache = open_cache(r)
  end
  count_micros(r, resumed)
  -- where a rank has one micro-batch of a step, it ends with the reduction, beside backward
  r.reduced = r.ranks ~= nil and r.micros <= r.team.size
  r.update = optim.new(r.exec, r.pipe.params, r.ranks, r.reduced)
  samples.loader(r, resumed or nil)
  r.plan = r.loader:plan()
  if r.cached.latents then
    blame.field(s, r.cached.latents, r.cache.check_epochs, r.cache, drawn_epochs(r))
  end
  r.feed = feed.new(s, r.pipe, {codec = r.codec, latents = r.cached.latents and r.cache,
    text = r.cached.text and r.cache})
end

return samples
