--- Batches of decoded clips, in the order of the index, the bucket rule and the seed.
-- @module moonreel.data.loader
local base = require "moonreel.core.base"
local buckets = require "moonreel.data.buckets"
local core = require "moonreel.core.loader"
local tensor = require "moonreel.core.tensor"

local Batch = {}
Batch.__index = Batch
Batch.__name = "moonreel.Batch"

--- The pixels, u8 [size][frames][3][height][width], valid until the batch is released.
---@return lightuserdata pointer
---@return integer bytes
function Batch:pixels()
  if self.released then
    base.raise("MR_E_USAGE", "the batch was released and its pixels are gone; try: use a batch "
      .. "before loader:release")
  end
  return self.pointer, self.bytes
end

--- The pixels as a tensor, u8 [size, frames, 3, height, width], over the same memory. It must not
-- be used after the batch is released.
---@return mr.Tensor
function Batch:tensor()
  local pointer, bytes = self:pixels()
  return tensor.wrap(pointer, bytes, "u8", { self.size, self.frames, 3, self.height, self.width },
    self)
end

local Loader = {}
Loader.__index = Loader
Loader.__name = "moonreel.Loader"
Loader.__close = function(self) self:close() end

--- The next batch, or nil after the last epoch. Fields: epoch, drawn (the epoch whose draws decide
-- buckets, starts and captions), source (its number: epochs and rows belong to one source), draw
-- (its number in the epoch), last (of the epoch), bucket, resolution, frames, height, width, size
-- (B, static), n (filled slots), weights, ids, keys, starts, fps, native_fps, native_heights,
-- native_widths, captions: lists of `size`; wait_s. other: a batch of another rank, with only ids
-- and keys of its samples.
---@return table|nil batch
function Loader:next()
  local batch = self.core:next()
  if not batch then
    return nil
  end
  batch.loader = self.core  -- the memory lives at least as long as the batch
  for i = 1, self.says and batch.captions and batch.n or 0 do
    batch.captions[i] = batch.captions[i] .. self.says(batch.source, batch.ids[i])
  end
  return setmetatable(batch, Batch)
end

--- The text to append to the captions of a sample.
---@param source integer  as in batches
---@param id integer      as in batches
---@return string
function Loader:said(source, id) return self.says and self.says(source, id) or "" end

--- Returns a batch's memory to the loader; its pixels must not be read any more.
---@param batch table
function Loader:release(batch)
  if batch.released then
    return
  end
  batch.released = true
  self.core:release(batch.handle)
end

--- The state after the last batch, as text for a checkpoint.
---@return string
function Loader:state()
  return self.core:state()
end

--- The samples that are excluded at that state, as text for a checkpoint.
---@return string
function Loader:excluded()
  return self.core:excluded()
end

--- The samples that failed here since the last call, as text for the ranks that share the order.
---@return string
function Loader:failures()
  return self.core:failures()
end

--- Takes the failures of all other ranks. Ranks exchange them at the end of an epoch, before the
-- next batch is requested, and before a state is saved.
---@param others string  their failures(), one after another
function Loader:agree(others)
  self.core:agree(others)
end

--- Row ids (from 0) of the next n samples, each in its source, without decoding.
---@param n integer
---@return integer[]
function Loader:order(n)
  return self.core:order(n)
end

--- The contents of the epochs in which the sources began: samples, batches, dropped {rule = rows},
-- and used buckets {resolution, frames, height, width, batch, samples, batches}; sources {name,
-- rows, epoch, samples, batches, delivered}; slabs, slab_bytes, threads; pool_s, the seconds for
-- touching the slabs, and small_bytes, the part of them outside large pages
---@return table
function Loader:plan()
  local facts = self.core:facts()
  local used = {}
  for _, b in ipairs(facts.buckets) do
    if b.samples > 0 then
      used[#used + 1] = b
    end
  end
  facts.all_buckets, facts.buckets = facts.buckets, used
  return facts
end

--- Counters so far: delivered and failed samples; batches that were ready when next() asked for
-- them (hits) and that were not (waits), seconds waited; bytes of their pixels; batches that are
-- ready now; sources as in a plan.
---@return table
function Loader:stats()
  local facts = self.core:facts()
  return { delivered = facts.delivered, failed = facts.failed, wait_s = facts.wait_s,
    hits = facts.hits, waits = facts.waits, bytes = facts.decoded_bytes, ready = facts.ready,
    sources = facts.sources }
end

--- Stops the threads and frees the slabs. It may be called at any time, also twice.
function Loader:close()
  self.core:close()
end

local loader = {}

-- the sources in the form of the core; a single index becomes one source
local function sources_of(o)
  if not o.sources then
    return { { index = o.index.core, seen = o.seen, epoch = o.epoch } }
  end
  local list = {}
  for i, s in ipairs(o.sources) do
    list[i] = { name = s.name, index = s.index.core, weights = s.weights, epochs = s.epochs,
      members = s.members, seen = s.seen, epoch = s.epoch }
  end
  return list
end

--- Starts decode threads.
---@param o table  the options of data.loader, read
---@return moonreel.Loader
function loader.new(o)
  return setmetatable({ says = o.says, core = core.new(sources_of(o), {
    buckets = buckets.table(o),
    frame_interval = o.frame_interval, compat = o.compat == true or o.compat == "opensora-1.2",
    draw_epochs = o.draw_epochs, reference = o.reference, fps_max = o.fps_max,
    seed = o.seed, threads = o.threads, prefetch = o.prefetch,
    epochs = o.epochs,
    state = o.state, excluded = o.excluded, quarantine = o.quarantine, slot = o.virtual_ranks,
    carry = o.tail == "carry", lpt = o.lpt,
    deadline_s = o.deadline_s, isolated = o.isolated, allow_empty = o.allow_empty_buckets,
    part = o.part, parts = o.parts, group = o.group, blind = o.blind,
    sample_part = o.sample_part, sample_parts = o.sample_parts,
    node = o.node, local_ranks = o.local_ranks }) }, Loader)
end

--- Does a sample belong to this part? Each sample belongs to exactly one part.
---@param key integer   as in batches
---@param part integer  from 1
---@param parts integer
---@return boolean
function loader.in_part(key, part, parts) return core.in_part(key, part, parts) end

return loader
