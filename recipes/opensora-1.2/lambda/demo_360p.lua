-- One clip a step at 360p, 102 frames: does the largest shape fit?
return recipe.extend("../base") {
  vae = { from_pretrained = "hpcai-tech/OpenSora-VAE-v1.2" },
  text_encoder = { local_files_only = recipe.remove },
  bucket_config = { ["360p"] = { [102] = { 1.0, 1 } } },
  warmup_steps = 1000,
}
