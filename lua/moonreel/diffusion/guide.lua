--- Separate guidance of Open-Sora 2.0's sampler by text and by a visual condition. It combines
-- three predictions, v_hat = v3 + image (v2 - v3) + text (v1 - v2): for the prompt, for the
-- negative prompt, and without the condition. Ref: opensora-2.0.md 16.4.
-- @module moonreel.diffusion.guide
local guide = {}

-- from this step on, oscillating scales are 1 at every other step
local CALM <const> = 10

local function oscillating(scale, on, i)
  return on and i >= CALM and i % 2 == 1 and 1 or scale
end

--- The scales of a step.
---@param o table      guidance, guidance_img; text_osci, image_osci
---@param i integer    from 0
---@return number text, number image
function guide.scales(o, i)
  return oscillating(o.guidance, o.text_osci, i), oscillating(o.guidance_img, o.image_osci, i)
end

--- The scale of an image over the latent frames of a clip: it grows from 1 at the first frame, less
-- with every step.
---@param image number     from guide.scales
---@param i integer        step, from 0
---@param steps integer
---@param frames integer   number of latent frames
---@return number[]
function guide.over_frames(image, i, steps, frames)
  local last, list = image + (1 - image) * i / steps, {}
  for f = 0, frames - 1 do
    list[f + 1] = 1 + (last - 1) * f / math.max(frames - 1, 1)
  end
  return list
end

--- The scale of an image at every latent frame in a step.
---@param o table          as in guide.scales; scale_temporal_osci
---@param kind string      the condition
---@param i integer        step, from 0
---@param steps integer
---@param frames integer   number of latent frames
---@return number[]
function guide.image(o, kind, i, steps, frames)
  local _, image = guide.scales(o, i)
  if o.scale_temporal_osci and kind:find "^i2v" and image > 1 then
    return guide.over_frames(image, i, steps, frames)
  end
  local list = {}
  for f = 1, frames do
    list[f] = image
  end
  return list
end

--- Adds the mix of three predictions; of two, if there is no condition: then the second and the
-- third are the same.
---@param v mr.Value          f32 [3 B or 2 B, C, T, H, W]: for the prompts, for the negative
---   prompts, for those without the condition
---@param text mr.Value       f32 [1]
---@param image mr.Value|nil  f32 [T]; nil: there are two predictions
---@return mr.Value           f32 [B, C, T, H, W]
function guide.mix(v, text, image)
  local B, C, frames, H, W = table.unpack(v.shape)
  B = B // (image and 3 or 2)
  local shape = { B, C, frames, H, W }
  local one, two = v:slice(0, 0, B), v:slice(0, B, 2 * B)
  local function spread(scale, n)
    return scale:reshape { 1, 1, n, 1, 1 }:expand(shape)
  end
  local mixed = (one - two) * spread(text, 1)
  if not image then
    return two + mixed
  end
  local three = v:slice(0, 2 * B, 3 * B)
  return three + (two - three) * spread(image, frames) + mixed
end

return guide
