--- Checks that a rendering fits into memory. Its work memory is computed from the same programs at
-- a size of few latent cells, because work memory grows in proportion to their number.
-- @module moonreel.sample.fit
local base = require "moonreel.core.base"
local listing = require "moonreel.text.listing"

local fit = {}

local CELLS = 2048  -- latent cells of the small size
local STEP = 16     -- suggested sides are multiples of this

-- a smaller rendering of the same shape, with at most CELLS latent cells
local function reduced(auto, r)
  local frames = math.min(r.frames, auto.frames or r.frames)
  local function cells(height, width)
    local size = auto:latent(frames, height, width)
    return size[2] * size[3] * size[4]
  end
  local height, width = r.height, r.width
  while cells(height, width) > CELLS and math.max(height, width) > STEP do
    height, width = math.max(height // 2, STEP), math.max(width // 2, STEP)
  end
  return setmetatable({frames = frames, height = height, width = width}, {__index = r})
end

local function work_bytes(prog)
  local m = prog:memory()
  return m.arena + m.inputs + m.results + m.consts
end

--- Bytes that a rendering needs in addition to the weights.
---@param auto mr.Autoencoder
---@param codec mr.Codec
---@param r table                                from moonreel.sample.request
---@param step fun(r: table): mr.Program         the program of a step
---@return integer
function fit.bytes(auto, codec, r, step)
  local small = reduced(auto, r)
  local few = auto:latent(small.frames, small.height, small.width)
  local all = auto:latent(r.frames, r.height, r.width)
  local area = all[3] * all[4] / (few[3] * few[4])
  local bytes = work_bytes(step(small)) * area * all[2] / few[2]
  if auto.apart then
    bytes = bytes + codec:bytes("decode", r.frames, r.height, r.width)
  end
  return math.ceil(bytes)
end

-- sides of the same aspect with `share` of the cells; nil if they would be 0
local function smaller(r, share)
  local function side(n) return math.floor(n * share ^ 0.5) // STEP * STEP end
  local height, width = side(r.height), side(r.width)
  return math.min(height, width) > 0 and ("--size %dx%d"):format(height, width) or nil
end

--- Refuses a rendering that does not fit.
---@param r table         from moonreel.sample.request
---@param bytes integer   from fit.bytes
---@param free integer    bytes of the device
function fit.check(r, bytes, free)
  if bytes <= free then
    return
  end
  local share = free / bytes
  local tries = {smaller(r, share)}
  if not tries[1] and r.frames > 1 then
    tries[1] = ("--num-frames %d"):format(math.max(share * r.frames // 1, 1))
  end
  if r.batch > 1 and share * r.batch >= 1 then
    table.insert(tries, 1, ("--batch-size %d"):format(share * r.batch // 1 | 0))
  end
  tries[1] = tries[1] or "more memory"
  base.raise("MR_E_MEMORY", ("sample: %d frames of %d x %d, %d at once, need about %s, and %s are "
    .. "free; try: %s"):format(r.frames, r.height, r.width, r.batch, listing.size(bytes),
    listing.size(free), table.concat(tries, ", or ")))
end

return fit
