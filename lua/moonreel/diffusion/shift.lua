--- Times of Flux and of Open-Sora 2.0: 1 is noise, 0 is data. The more cells a clip has, the more
-- its times shift towards noise. Ref: Esser et al. 2024, arXiv:2403.03206, 5.3.2; opensora-2.0.md
-- 2.2, 16.3.
-- @module moonreel.diffusion.shift
local shift = {}

-- the line through (256 tokens of a frame, 1) and (4096, 3), not clamped
local SLOPE <const>, AT_ZERO <const> = 2 / 3840, 1 - 256 * 2 / 3840

-- rounds a number to f32
local function f32(x) return (string.unpack("<f", string.pack("<f", x))) end

--- The factor of the shift.
---@param size table       latent size {T, H, W}
---@param cells integer    latent cells of a token
---@return number
function shift.alpha(size, cells)
  return (SLOPE * (size[2] * size[3] // cells) + AT_ZERO) * size[1] ^ 0.5
end

--- Shifts a time towards noise, with each operation rounded to f32 as in the reference: the
-- sinusoid of a time turns one unit in its last place into 6e-5.
---@param t number      0..1
---@param alpha number  from shift.alpha
---@return number
function shift.of(t, alpha)
  return f32(f32(f32(alpha) * t) / f32(1 + f32(f32(alpha - 1) * t)))
end

--- The training time for a normal draw, rounded in the same way.
---@param n number
---@param alpha number
---@return number  0..1
function shift.logit_normal(n, alpha)
  return shift.of(f32(1 / f32(1 + f32(math.exp(-n)))), alpha)
end

--- The times of a sampling run, from noise down: n + 1 times for n steps; the last is 0. Before the
-- shift they are evenly spaced in f32.
---@param n integer
---@param alpha number|nil  nil: they are not shifted
---@return number[]
function shift.schedule(n, alpha)
  local step, times = f32(1 / n), {}
  for i = 0, n do
    -- both halves are counted from their ends, as in torch
    local t = i < (n + 1) // 2 and f32(1 - step * i) or f32(step * (n - i))
    times[i + 1] = alpha and shift.of(t, alpha) or t
  end
  return times
end

return shift
