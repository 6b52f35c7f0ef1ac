-- The same through the causal autoencoder.
return recipe.extend("./dc_ae") {
  model = recipe.replace { type = "hunyuan_vae", use_spatial_tiling = true,
    use_temporal_tiling = true },
  ckpt_path = "./ckpts/hunyuan_vae.safetensors",
  bucket_config = recipe.replace { ["512px_ar1:1"] = { [97] = { 1.0, 1 } } },
  plugin = "zero2",
  save_dir = "samples/hunyuanvideo_vae",
}
