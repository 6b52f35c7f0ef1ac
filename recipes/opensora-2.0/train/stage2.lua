-- Stage 2: clips at 768px, tokens shared by 4 ranks.
return recipe.extend("./image") {
  bucket_config = recipe.replace(require("../buckets").stage2),
  grad_ckpt_settings = { 100, 100 },
  lr = 5e-5,
  plugin = "hybrid",
  plugin_config = {
    tp_size = 1, pp_size = 1, sp_size = 4, zero_stage = 2,
    enable_sequence_parallelism = true, sequence_parallelism_mode = "ring_attn",
      static_graph = true,
  },
  ckpt_every = 200,
}
