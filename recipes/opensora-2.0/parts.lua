--- Parts that several recipes of Open-Sora 2.0 share.
local parts = {}

-- sizes of pinned buffers: {count, elements}, ...
function parts.pinned(...)
  local sizes = {}
  for _, group in ipairs { ... } do
    for _ = 1, group[1] do
      sizes[#sizes + 1] = group[2]
    end
  end
  return sizes
end

parts.hunyuan = { type = "hunyuan_vae", from_pretrained = "./ckpts/hunyuan_vae.safetensors",
  use_spatial_tiling = true }

function parts.dc_ae()
  return { type = "dc_ae", model_name = "dc-ae-f32t4c128",
    from_pretrained = "./ckpts/F32T4C128_AE.safetensors", from_scratch = true,
    use_spatial_tiling = true, use_temporal_tiling = true }
end

return parts
