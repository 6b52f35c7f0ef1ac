-- Loss at ten fixed times, bucket by bucket, of every sample: `moonreel train
-- opensora-1.2/misc/eval_loss --ckpt-path RUN --data-path NAME.mrx`. Ref:
-- configs/opensora-v1-2/misc/eval_loss.
return recipe {
  job = "eval_loss",
  compat = "opensora-1.2",
  num_eval_timesteps = 10,
  bucket_config = require("../buckets").eval_loss,
  num_workers = 8,
  model = { enable_flash_attn = true, enable_layernorm_kernel = true },
  vae = { type = "OpenSoraVAE_V1_2", from_pretrained = "hpcai-tech/OpenSora-VAE-v1.2" },
  text_encoder = { type = "t5", from_pretrained = "DeepFloyd/t5-v1_1-xxl",
    local_files_only = true },
  seed = 42,
}
