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

--- Start decode threads.
---@param options table  index (moonreel.Index), bucket_config, resolutions, frame_interval 1,
---   compat (Open-Sora 1.2's
--- length test: true or "opensora-1.2"), seed 0, threads (one per processor), prefetch 2, epochs
-- (0: without end),
--- state (text of loader:state()), excluded (text of loader:excluded()), quarantine (path of quarantine.jsonl), deadline_s 60,
--- allow_empty_buckets (a length that no sample can enter is refused otherwise)
---@return moonreel.Loader
function loader.new(options)
  local index = options.index
  if not index then
    base.raise("MR_E_USAGE", "data.loader: index is missing; try: data.open(path)")
  end
  return setmetatable({ core = core.new(index.core, {
    buckets = buckets.resolve(options.bucket_config, options.resolutions),
      frame_interval = options.frame_interval,
    compat = options.compat == true or options.compat == "opensora-1.2",
      seed = options.seed, threads = options.threads,
    prefetch = options.prefetch, epochs = options.epochs, state = options.state,
      excluded = options.excluded, quarantine = options.quarantine,
    deadline_s = options.deadline_s, allow_empty = options.allow_empty_buckets }) }, Loader)
end

return loader
