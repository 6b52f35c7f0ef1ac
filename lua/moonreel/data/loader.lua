--- Batches of decoded clips, in the order of the index, the bucket rule and the seed.
-- @module moonreel.data.loader
local base = require "moonreel.core.base"
local buckets = require "moonreel.data.buckets"
local core = require "moonreel.core.loader"
local options = require "moonreel.text.options"
local tensor = require "moonreel.core.tensor"

local Batch = {}
Batch.__index = Batch
Batch.__name = "moonreel.Batch"

--- The pixels, u8 [size][frames][3][height][width], valid until the batch is released.
---@return lightuserdata pointer
---@return integer bytes
function Batch:pixels()
  if self.released then
    base.raise("MR_E_USAGE", "batch: it was released")
  end
  return self.pointer, self.bytes
end

--- The pixels as a tensor, u8 [size, frames, 3, height, width], over the same memory: not to be
-- used once the batch is released.
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

--- The next batch, or nil after the last epoch. Fields: epoch, draw (its number in the epoch), last
-- (of the epoch), bucket, resolution, frames, height, width, size (B, static), n (filled slots),
-- weights, ids, keys, starts, fps, native_fps, native_heights, native_widths, captions: lists of
-- `size`; wait_s.
---@return table|nil batch
function Loader:next()
  local batch = self.core:next()
  if not batch then
    return nil
  end
  batch.loader = self.core  -- the memory lives at least as long as the batch is known
  return setmetatable(batch, Batch)
end

--- Give a batch's memory back; its pixels may no longer be read.
---@param batch table
function Loader:release(batch)
  if batch.released then
    return
  end
  batch.released = true
  self.core:release(batch.handle)
end

--- State after the batch given out last, as text; goes into a checkpoint.
---@return string
function Loader:state()
  return self.core:state()
end

--- The samples left out where that state stands, as text; goes into a checkpoint beside the state.
---@return string
function Loader:excluded()
  return self.core:excluded()
end

--- Row ids (from 0) of the next n samples, without decoding.
---@param n integer
---@return integer[]
function Loader:order(n)
  return self.core:order(n)
end

--- What the epoch the loader began in holds: samples, batches, dropped {rule = rows}, and used
-- buckets
-- {resolution, frames, height, width, batch, samples, batches}; slabs, slab_bytes, threads.
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

--- Counters so far: delivered and failed samples, seconds waited in next().
---@return table
function Loader:stats()
  local facts = self.core:facts()
  return { delivered = facts.delivered, failed = facts.failed, wait_s = facts.wait_s }
end

--- Stop the threads and free the slabs; at any moment, also twice.
function Loader:close()
  self.core:close()
end

local loader = {}

local read_options = options.declare("data.loader", {
  { "index", "moonreel.Index", "where the clips are; required" },
  { "bucket_config", "table", "resolution -> frames -> {probability, batch size}; required" },
  { "resolutions", "table", "further names: name -> {pixels, aspects}" },
  { "frame_interval", "integer", "frames from one used to the next", default = 1 },
  { "compat", "boolean|text", "the length test of Open-Sora 1.2: true or \"opensora-1.2\"" },
  { "seed", "integer", "of the order", default = 0 },
  { "threads", "integer", "of decoding; 0: one per processor", default = 0 },
  { "prefetch", "integer", "batches decoded ahead", default = 2 },
  { "epochs", "integer", "end after so many in all; 0: never", default = 0 },
  { "state", "text", "go on from this loader:state()" },
  { "excluded", "text", "left out where that state stands: loader:excluded()" },
  { "quarantine", "text", "path of quarantine.jsonl: read, and appended to" },
  { "deadline_s", "number", "seconds for one clip", default = 60 },
  { "allow_empty_buckets", "boolean", "a length that no sample can enter is left out, not refused",
    default = false },
})

--- Start decode threads.
---@param given table  options of data.loader, declared above
---@return moonreel.Loader
function loader.new(given)
  local o = read_options(given)
  if not o.index then
    base.raise("MR_E_USAGE", "data.loader: index is missing; try: data.open(path)")
  end
  return setmetatable({ core = core.new(o.index.core, {
    buckets = buckets.resolve(o.bucket_config, o.resolutions),
    frame_interval = o.frame_interval, compat = o.compat == true or o.compat == "opensora-1.2",
    seed = o.seed, threads = o.threads, prefetch = o.prefetch, epochs = o.epochs,
    state = o.state, excluded = o.excluded, quarantine = o.quarantine,
    deadline_s = o.deadline_s, allow_empty = o.allow_empty_buckets }) }, Loader)
end

return loader
