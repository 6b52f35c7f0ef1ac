--- Visual conditions of Open-Sora 2.0: which latent frames of a clip are given, and their source
-- frames. A condition is a mask over latent frames and the remaining latent, concatenated as
-- channels. Ref: opensora-2.0.md 3, 16.4.
-- @module moonreel.diffusion.condition
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"

local condition = {}

-- pixel frames at one end, in steps of 32, for types with more than one frame
local LONG <const>, EASY <const> = 32, 64

-- by type: the given ends, and the number of pixel frames or latent steps
local types = {
  t2v = {},
  i2v_head = { head = true },
  i2v_tail = { tail = true },
  i2v_loop = { head = true, tail = true },
  v2v_head = { head = true, frames = LONG },
  v2v_tail = { tail = true, frames = LONG },
  v2v_head_easy = { head = true, frames = EASY },
  v2v_tail_easy = { tail = true, frames = EASY },
}

--- The relation of pixel frames and latent frames in an autoencoder.
---@param auto mr.Autoencoder
---@return integer step    pixel frames of a latent frame
---@return boolean causal  the first latent frame covers one pixel frame
function condition.frames_of(auto) return auto.step or 1, not auto.grouped end

--- Names of the types, in alphabetical order.
---@return string[]
function condition.names()
  local list = {}
  for name in pairs(types) do
    list[#list + 1] = name
  end
  table.sort(list)
  return list
end

local function of(name)
  return types[name] or base.raise("MR_E_RECIPE", ("condition_config: '%s' is not a kind of "
    .. "condition; expected one of %s"):format(tostring(name), table.concat(condition.names(),
    ", ")))
end

--- The number of latent frames that a condition gives at an end.
---@param name string
---@param step integer    pixel frames of a latent frame
---@param causal boolean  the first latent frame covers one pixel frame
---@return integer
function condition.length(name, step, causal)
  local row = of(name)
  return row.frames and row.frames // step + (causal and 1 or 0) or 1
end

--- Is a clip long enough for a condition?
---@param name string
---@param latent integer  frames
---@param step integer
---@param causal boolean
---@return boolean
function condition.fits(name, latent, step, causal)
  local row = of(name)
  return not row.frames or latent > condition.length(name, step, causal)
end

--- The number of pixel frames that a condition gives at an end.
---@param name string
---@param causal boolean
---@return integer
function condition.pixels(name, causal)
  local row = of(name)
  return row.frames and row.frames + (causal and 1 or 0) or 1
end

--- The weights of a recipe for drawing: in the order of their names, without those that are 0.
---@param config table<string, number>
---@return table[]  {name, weight}
function condition.weights(config)
  local list = {}
  for name, weight in pairs(config) do
    list[#list + 1] = weight > 0 and of(name) and { name, weight } or nil
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end

--- Draws a type: the first one at which the sum of weights exceeds the share u of the total.
---@param weights table[]  {name, weight}
---@param u number         uniform in [0, 1)
---@return string|nil      nil: there are no weights
function condition.draw(weights, u)
  local total, sum = 0, 0
  for _, row in ipairs(weights) do
    total = total + row[2]
  end
  for i, row in ipairs(weights) do
    sum = sum + row[2]
    if sum > u * total or i == #weights then
      return row[1]
    end
  end
end

--- The types of a recipe for which a clip is long enough. The recipe is not changed.
---@param weights table[]  {name, weight}
---@param latent integer   frames
---@param step integer
---@param causal boolean
---@return table[]
function condition.fitting(weights, latent, step, causal)
  local list = {}
  for _, row in ipairs(weights) do
    list[#list + 1] = condition.fits(row[1], latent, step, causal) and row or nil
  end
  return list
end

---@class mr.ConditionPart
---@field at integer      first given latent frame
---@field n integer       latent frames
---@field first integer   first pixel frame from which they are encoded
---@field frames integer  pixel frames
---@field slice boolean   they are a part of the clip's own latent and are not encoded separately

--- The parts that a condition gives of a clip.
---@param name string
---@param latent integer   frames
---@param frames integer   of the clip, in pixels
---@param step integer
---@param causal boolean
---@return mr.ConditionPart[]
function condition.parts(name, latent, frames, step, causal)
  local row, list = of(name), {}
  local n = condition.length(name, step, causal)
  local pixels = condition.pixels(name, causal)
  local slice = row.frames ~= nil and not causal
  if row.head then
    list[1] = { at = 0, n = n, first = 0, frames = pixels, slice = slice }
  end
  if row.tail then
    list[#list + 1] = { at = latent - n, n = n, first = frames - pixels, frames = pixels,
      slice = slice }
  end
  return list
end

---@class mr.GivenPart
---@field at integer    first given latent frame
---@field z mr.Tensor   f32 [C, n, H, W]

-- the frames of a sample at a part's place: [1, C, n, H, W] of [B, C, T, H, W]
local function place_of(z, b, part)
  return z:slice(0, b, b + 1):slice(2, part.at, part.at + part.z.shape[2])
end

--- The condition for copies of a batch: mask and latent, concatenated in channels; the third copy
-- has no condition.
---@param dims integer[]            {B, C, T, H, W}
---@param given mr.GivenPart[][]    of each sample
---@param copies integer            1 to 3
---@return mr.Tensor                f32 [copies x B, 1 + C, T, H, W]
function condition.of_copies(dims, given, copies)
  local B, C = dims[1], dims[2]
  local all = T.new("f32", { copies * B, 1 + C, table.unpack(dims, 3) })
  for k = 0, math.min(copies, 2) - 1 do
    for b, parts in ipairs(given) do
      for _, part in ipairs(parts) do
        local place, n = place_of(all, k * B + b - 1, part), part.z.shape[2]
        place:slice(1, 0, 1):copy_from(T.new("f32", { 1, 1, n, dims[4], dims[5] }) + 1)
        place:slice(1, 1, 1 + C):copy_from(part.z:reshape { 1, table.unpack(part.z.shape) })
      end
    end
  end
  return all
end

--- Writes the given frames of a sample into its latents again.
---@param z mr.Tensor              f32 [B, C, T, H, W]; changed in place
---@param b integer                from 0
---@param parts mr.GivenPart[]
function condition.put_back(z, b, parts)
  for _, part in ipairs(parts) do
    place_of(z, b, part):copy_from(part.z:reshape { 1, table.unpack(part.z.shape) })
  end
end

--- Which latent frames count in a loss that leaves out given ends: a given end does not count,
-- unless an inner frame is given, too.
---@param mask boolean[]  of the latent frames: true: given
---@return boolean[]
function condition.counted(mask)
  local n, inner, list = #mask, false, {}
  for f = 2, n - 1 do
    inner = inner or mask[f]
  end
  for f = 1, n do
    list[f] = inner or not ((f == 1 or f == n) and mask[f])
  end
  return list
end

return condition
