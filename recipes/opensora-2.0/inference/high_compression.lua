-- 128 frames at 768px through the deep compression autoencoder, on one device.
return recipe.extend("./t2i2v_768px") {
  model = { in_channels = 128, patch_size = 1 },
  ckpt_path = "./ckpts/Open_Sora_v2_Video_DC_AE.safetensors",
  vae = recipe.replace(require("../parts").dc_ae()),
  patch_size = 1, ae_spatial_compression = 32,
  plugin = recipe.none, plugin_config = recipe.remove,
  plugin_ae = recipe.none, plugin_config_ae = recipe.remove,
  sampling = { num_frames = 128 },
}
