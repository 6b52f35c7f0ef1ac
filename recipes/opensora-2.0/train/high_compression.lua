-- Clips at 768px through the deep compression autoencoder.
local ae = require("../parts").dc_ae()
ae.scaling_factor = 0.493

return recipe.extend("./image") {
  bucket_config = recipe.replace(require("../buckets").high_compression),
  model = { in_channels = 128, patch_size = 1, cond_embed = true },
  patch_size = 1, ae_spatial_compression = 32,
  vae = recipe.replace(ae), is_causal_vae = false,
  condition_config = { t2v = 1, i2v_head = 7 },
  grad_ckpt_settings = { 100, 100 },
  lr = 3e-5,
  ckpt_every = 250,
}
