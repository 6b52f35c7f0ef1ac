--- Weights of the autoencoder under other names: its half for pictures alone, and the attention
-- names of older files. Ref: weights.md.
-- @module moonreel.models.opensora_vae.weights
local T = require "moonreel.core.tensor"

local ATTENTION = "mid_block.attentions.0."

-- the attention's names in older files
local older = {
  { "(mid_block%.attentions%.0%.)query%.", "%1to_q." },
  { "(mid_block%.attentions%.0%.)key%.", "%1to_k." },
  { "(mid_block%.attentions%.0%.)value%.", "%1to_v." },
  { "(mid_block%.attentions%.0%.)proj_attn%.", "%1to_out.0." },
}

-- these and, for the half for pictures, its prefix here
local pictures = table.move(older, 1, #older, 1, {})
for _, word in ipairs { "encoder", "decoder", "quant_conv", "post_quant_conv" } do
  pictures[#pictures + 1] = { "^" .. word .. "%.", "spatial_vae.module." .. word .. "." }
end

-- matrices that some files store as kernels of one position
local function flat(t, shape)
  if #t.shape == 4 and #shape == 2 and T.count(t.shape) == T.count(shape) then
    return t:reshape(shape), "a matrix"
  end
end

local PICTURES = "spatial_vae.module."

-- facts about the half for pictures, whose names have this prefix
local function of_pictures(before)
  return { "levels", "^" .. before:gsub("%.", "%%.") .. "encoder%.down_blocks%.(%d+)%." },
    { "first width", before .. "encoder.conv_in.weight", 1 },
    { "latent_channels", before .. "decoder.conv_in.weight", 2 }
end

return {
  pictures = "AutoencoderKL", -- the layout of the half for pictures alone
  kinds = {
    { name = "OpenSora VAE 1.2",
      is = function(has) return has[PICTURES .. "encoder.conv_in.weight"] end,
      facts = { { "filters in time", "temporal_vae.encoder.conv_in.conv.weight", 1 },
        of_pictures(PICTURES) } },
    { name = "AutoencoderKL, the half for pictures of OpenSora VAE 1.2",
      is = function(has)
        return has["encoder.down_blocks.0.resnets.0.conv1.weight"] and has["quant_conv.weight"]
      end,
      facts = { of_pictures "" } },
  },
  layouts = {
    { name = "AutoencoderKL", is = function(has) return has["encoder.conv_in.weight"] end,
      rename = pictures, dropped = {},
      fresh = { { "^temporal_vae%.", "pictures have no time", "temporal_vae.*" } } },
    { name = "an older OpenSora VAE",
      is = function(has)
        return has["spatial_vae.module.encoder." .. ATTENTION .. "query.weight"]
      end, rename = older, dropped = {}, fresh = {} },
  },
  fit = setmetatable({}, { __index = function(_, name)
    return name:find(ATTENTION, 1, true) and flat or nil
  end }),
}
