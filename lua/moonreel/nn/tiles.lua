--- Layers over overlapping tiles of a clip whose results are blended, as reference programs do to
-- save memory. Results differ from those of the whole clip: each tile has its own norms and
-- borders. Channels last, [B, T, H, W, C]. Ref: opensora-2.0.md 11.4, 12.
-- @module moonreel.nn.tiles
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local nn = require "moonreel.nn"

local tiles = {}

local TIME <const>, HEIGHT <const>, WIDTH <const> = 1, 2, 3

local function length(x, axis) return x.shape[axis + 1] end

local function upto(x, axis, n) return x:slice(axis, 0, math.min(n, length(x, axis))) end

-- x times value(i) at position i of an axis
local function ramped(g, x, axis, value)
  local shape, values = { 1, 1, 1, 1, 1 }, {}
  shape[axis + 1] = length(x, axis)
  for i = 0, length(x, axis) - 1 do
    values[i + 1] = value(i)
  end
  return x * nn.cast(g:const(T.from(shape, values)), x.dtype)
end

-- blends the beginning of b with the end of a, over at most `extent` positions
local function blended(g, a, b, axis, extent)
  local n = math.min(extent, length(a, axis), length(b, axis))
  if n == 0 then
    return b
  end
  local from, to = a:slice(axis, length(a, axis) - n, length(a, axis)), b:slice(axis, 0, n)
  local mixed = ramped(g, from, axis, function(i) return 1 - i / n end)
    + ramped(g, to, axis, function(i) return i / n end)
  return length(b, axis) == n and mixed
    or G.concat({ mixed, b:slice(axis, n, length(b, axis)) }, axis)
end

-- blends a tile with the one above it, then with the one to its left, in their blended form
local function of_frames(g, x, how, layers)
  local rows, above = {}, {}
  for y = 0, length(x, HEIGHT) - 1, how.step do
    local row, kept = {}, {}
    for left = 0, length(x, WIDTH) - 1, how.step do
      local i = #row + 1
      local tile = layers(x:slice(HEIGHT, y, math.min(y + how.tile, length(x, HEIGHT)))
        :slice(WIDTH, left, math.min(left + how.tile, length(x, WIDTH))))
      tile = above[i] and blended(g, above[i], tile, HEIGHT, how.blend) or tile
      tile = row[i - 1] and blended(g, row[i - 1], tile, WIDTH, how.blend) or tile
      row[i], kept[i] = tile, upto(upto(tile, HEIGHT, how.keep), WIDTH, how.keep)
    end
    rows[#rows + 1], above = G.concat(kept, WIDTH), row
  end
  return G.concat(rows, HEIGHT)
end

-- are there frames larger than a tile?
local function is_large(x, how)
  return how and (length(x, HEIGHT) > how.tile or length(x, WIDTH) > how.tile)
end

local function in_space(g, x, how, layers)
  return is_large(x, how.space) and of_frames(g, x, how.space, layers) or layers(x)
end

--- Applies layers to tiles, in time before space.
---@param x mr.Value       [B, T, H, W, C]
---@param how table        space, time: each nil (whole), or tile and step, in cells of x; blend and
---   keep, in cells of the result: the overlap of neighbours, and the kept part of a tile. In time
---   also more: frames of a tile beyond `tile`; all tiles but the first drop this number of frames
---   from the beginning of their results, and the first keeps as many more
---@param layers fun(tile: mr.Value): mr.Value
---@return mr.Value
function tiles.through(g, x, how, layers)
  local time = how.time
  if not time or length(x, TIME) <= time.tile then
    return in_space(g, x, how, layers)
  end
  local kept, before = {}, nil
  for first = 0, length(x, TIME) - 1, time.step do
    local last = math.min(first + time.tile + time.more, length(x, TIME))
    local tile = in_space(g, x:slice(TIME, first, last), how, layers)
    if before then
      tile = tile:slice(TIME, time.more, length(tile, TIME))
      tile = blended(g, before, tile, TIME, time.blend)
    end
    kept[#kept + 1] = upto(tile, TIME, time.keep + (before and 0 or time.more))
    before = tile
  end
  return G.concat(kept, TIME)
end

--- Tiles for encoding and decoding. Steps and blends are rounded down, as in reference programs.
---@field of the recipe, for an error
---@param size integer     pixels or frames of a tile
---@param cell integer     pixels or frames in a latent cell
---@param overlap number   share of a tile that overlaps the next one
---@param more integer     frames of a tile beyond its size
---@return table encode, table decode  for tiles.through
function tiles.of(field, size, cell, overlap, more)
  local latent = size // cell
  local encode = { tile = size, step = size * (1 - overlap) // 1 | 0,
    blend = latent * overlap // 1 | 0, more = more }
  local decode = { tile = latent, step = latent * (1 - overlap) // 1 | 0,
    blend = size * overlap // 1 | 0, more = more }
  encode.keep, decode.keep = latent - encode.blend, size - decode.blend
  if size % cell ~= 0 or decode.step * cell ~= decode.keep or encode.step ~= encode.keep * cell then
    base.raise("MR_E_RECIPE", ("%s = %d with tile_overlap_factor = %g: the step between tiles "
      .. "would be %d, but the kept part %d, in cells of %d; expected both to be equal; try: a "
      .. "multiple of %d"):format(field, size,
      overlap, encode.step, encode.keep * cell, cell, 4 * cell))
  end
  return encode, decode
end

return tiles
