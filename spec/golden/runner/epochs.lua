--- Epochs in the order of a reference, as our orders and the loaders of all ranks give them, over
-- an index made of the samples of a reference file.
-- @module spec.golden.runner.epochs
local core = require "moonreel.core.loader"
local core_index = require "moonreel.core.index"
local temporary = require "moonreel.data.temporary"

local epochs = {}

--- Call a function with an index of samples that no files are behind; it is gone afterwards.
---@param samples table[]  {frames, height, width, fps}
---@param fn fun(index: mr.Index)
function epochs.with(samples, fn)
  local dir <close> = temporary.folder()
  local path = dir.path .. "/samples.mrx"
  local builder <close> = core_index.builder(path)
  for i, s in ipairs(samples) do
    builder:add { path = ("%d.mp4"):format(i), frames = s.frames, height = s.height,
      width = s.width, fps = s.fps }
  end
  builder:finish()
  local index <close> = core_index.open(path)
  fn(index)
end

local function options(o)
  return { buckets = o.buckets, reference = o.reference, fps_max = o.fps_max,
    frame_interval = o.frame_interval, seed = o.seed, slot = o.ranks }
end

--- The batches of an epoch, of all ranks in turn.
---@param index mr.Index
---@param o table  buckets (as moonreel.data.buckets resolves them), reference, fps_max,
---   frame_interval, seed, epoch, ranks; fill, unshuffled
---@return table[] batches  {rows (from 0), frames, height, width}
function epochs.of_order(index, o)
  local given, batches = options(o), {}
  given.fill, given.unshuffled = o.fill, o.unshuffled
  local order <close> = core.order({ { name = "", index = index } }, given)
  order:begin(o.epoch)
  local n = order:batches()
  for i = 1, n do
    local draw = order:next()
    local rows = {}
    for k, row in ipairs(draw.rows) do
      rows[k] = row - 1
    end
    batches[i] = { rows = rows, frames = draw.bucket.frames, height = draw.bucket.height,
      width = draw.bucket.width }
  end
  return batches
end

local function open(index, o, rank, state)
  local given = options(o)
  given.part, given.parts, given.blind, given.allow_empty = rank, o.ranks, true, true
  given.isolated, given.threads, given.epochs, given.state = true, 1, o.epoch + 1, state
  return core.new({ { index = index, epoch = o.epoch } }, given)
end

-- the state of a loader that has given this many batches
local function state_at(index, o, draws)
  local loader <close> = open(index, o, 0)
  for _ = 1, draws do
    loader:release(loader:next().handle)
  end
  return loader:state()
end

--- What the loader of a rank gives of an epoch, without decoding.
---@param index mr.Index
---@param o table       as of_order takes it
---@param rank integer  from 0
---@param from integer|nil  after this many batches of all ranks: it goes on from a state
---@return table[] batches
function epochs.of_loader(index, o, rank, from)
  local batches = {}
  local loader <close> = open(index, o, rank, from and state_at(index, o, from))
  for batch in function() return loader:next() end do
    if not batch.other then
      batches[#batches + 1] = { rows = table.move(batch.ids, 1, batch.n, 1, {}),
        frames = batch.frames, height = batch.height, width = batch.width }
    end
    loader:release(batch.handle)
  end
  return batches
end

return epochs
