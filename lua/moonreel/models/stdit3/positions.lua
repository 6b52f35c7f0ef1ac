--- Positions of STDiT3: sinusoids of cells and frames, rotations of heads. The reference computes
-- sizes, frequencies and angles in the compute dtype (reference opensora-1.2, section 1.5). Under
-- compat a bf16 model does the same; `rounded` below means this.
-- @module moonreel.models.stdit3.positions
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

local positions = {}

--- The falling frequencies 10000^(-k / n) of a sinusoid, k = 0 .. n - 1.
---@param n integer
---@param rounded boolean|nil  to bf16
---@return number[]
function positions.frequencies(n, rounded)
  local list = {}
  for k = 0, n - 1 do
    local f = 10000.0 ^ (-k / n)
    list[k + 1] = rounded and nn.round_bf16(f) or f
  end
  return list
end

--- The value rounded to a dtype, in f32.
function positions.held(x, dtype) return nn.cast(nn.cast(x, dtype), "f32") end

-- Sinusoids [#at, dim] of positions. Options: sin_first; rounded: frequencies are bf16;
-- round_angles: angles are bf16, too.
local function waves(g, at, dim, options)
  local n, half = #at, dim // 2
  if not options.rounded then
    return (ops.sincos(g:const(T.from({n}, at)), {dim = dim, sin_first = options.sin_first}))
  end
  local function spread(list, axis)
    return nn.spread(g:const(T.from({#list}, list)), {axis}, {n, half})
  end
  local angles = spread(at, 0) * spread(positions.frequencies(half, true), 1)
  if options.round_angles then
    angles = positions.held(angles, "bf16")
  end
  -- the wave of the first of two frequencies is that of the angle itself
  local wave = ops.sincos(angles:reshape{n * half}, {dim = 2, sin_first = options.sin_first})
  return wave:reshape{n, half, 2}:permute{0, 2, 1}:reshape{n, dim}
end

--- Scale of the position table: 1 for the model's original size.
---@param height number  pixels
---@param width number
---@param input_sq_size number
---@param rounded boolean|nil  sizes are bf16
function positions.scale(height, width, input_sq_size, rounded)
  if rounded then
    height, width = nn.round_bf16(height), nn.round_bf16(width)
  end
  return (height * width) ^ 0.5 / input_sq_size
end

--- Position table [H' W', D] of a token grid: the column's sinusoid first, then the row's.
---@param g mr.Graph
---@param rows integer      H'
---@param cols integer      W'
---@param scale number      from positions.scale
---@param base_size number
---@param D integer
---@param rounded boolean|nil  frequencies are bf16
function positions.table(g, rows, cols, scale, base_size, D, rounded)
  local r, c = {}, {}
  for i = 0, rows * cols - 1 do
    r[i + 1] = (i // cols) / scale * (base_size / rows)
    c[i + 1] = (i % cols) / scale * (base_size / cols)
  end
  local options = {sin_first = true, rounded = rounded}
  return G.concat({waves(g, c, D // 2, options), waves(g, r, D // 2, options)}, 1)
end

--- Cosines and sines [frames, d/2] of the rotation of each frame.
---@param d integer            width of a head
---@param rounded boolean|nil  frequencies, angles, cosines and sines are bf16
---@return mr.Value cos, mr.Value sin   f32
function positions.rotation(g, frames, d, rounded)
  local at = {}
  for i = 0, frames - 1 do
    at[i + 1] = i
  end
  local both = waves(g, at, d, {rounded = rounded, round_angles = true})
  if rounded then
    both = positions.held(both, "bf16")
  end
  return both:slice(1, 0, d // 2), both:slice(1, d // 2, d)
end

--- Table [frames, D] of an absolute frame index, 8 positions over the whole clip.
function positions.frames(g, frames, D)
  local at = {}
  for i = 0, frames - 1 do
    at[i + 1] = i * 8 / frames
  end
  return waves(g, at, D, {sin_first = true})
end

return positions
