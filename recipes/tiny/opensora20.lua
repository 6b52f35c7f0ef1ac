-- Open-Sora 2.0 at a size of seconds on a CPU: image, both stages, both with frames given, and the
-- high compression in a row over the demo's clips, then `moonreel sample` of what they leave. It
-- begins with the weights of an image model; all weights are random, from
-- `moonreel datasets/demo/build_weights20.lua build/demo/weights20`. Clips are longer than 17
-- frames: `moonreel datasets/demo/build.lua build/demo/long 1 18`, then
-- `moonreel data ingest build/demo/long/demo.csv -o build/demo/long.mrx`.
local home = "build/demo/weights20/"

local stages = {
  { name = "image", recipe = "opensora-2.0/train/image", ckpt_path = home .. "flux.safetensors",
    bucket_config = recipe.replace { small = { [1] = { 1.0, 8 } } }, plugin = recipe.none },
}

for _, name in ipairs { "stage1", "stage2", "stage1_i2v", "stage2_i2v" } do
  stages[#stages + 1] = { name = name, recipe = "opensora-2.0/train/" .. name,
    ckpt_path = recipe.previous, plugin = recipe.none, plugin_config = recipe.remove }
end

-- the high compression has tokens of another width: a model of its own
stages[#stages + 1] = { name = "high_compression", recipe = "opensora-2.0/train/high_compression",
  ckpt_path = recipe.none, plugin = recipe.none,
  bucket_config = recipe.replace { small = { [1] = { 1.0, 8 }, [16] = { 1.0, 4 } } },
  sampling = { frames = 16 },
  model = { in_channels = 16, patch_size = 1 },
  ae_spatial_compression = recipe.none,
  vae = recipe.replace { type = "dc_ae", from_pretrained = home .. "dc_ae.safetensors",
    scaling_factor = 0.493, latent_channels = 16, widths = { 8, 8, 16, 32 },
    encoder_blocks = { 1, 0, 0, 1 }, decoder_blocks = { 1, 0, 0, 1 }, attention_levels = 1,
    temporal_levels = { 1, 2 } } }

return recipe {
  name = "opensora20",
  stages = stages,
  dataset = { data_path = "build/demo/long.mrx" },
  resolutions = { small = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } },
  bucket_config = recipe.replace { small = { [1] = { 1.0, 8 }, [17] = { 1.0, 4 } } },
  num_workers = 0, pin_memory_cache_pre_alloc_numels = recipe.none,

  vae = { from_pretrained = home .. "hunyuan.safetensors", block_out_channels = { 8, 8, 16, 16 },
    layers_per_block = 1, norm_num_groups = 4 },
  text_encoder = { from_pretrained = home .. "t5", max_length = 56 },
  clip = { from_pretrained = home .. "clip" },
  model = { hidden_size = 32, num_heads = 2, depth = 1, depth_single_blocks = 2, mlp_ratio = 2,
    axes_dim = { 4, 6, 6 }, context_in_dim = 32, vec_in_dim = 32 },

  steps = 8, log_every = 4, wandb_project = recipe.none,
  sampling = { frames = 17, height = 32, width = 32, fps = 8, batch_size = 4, num_steps = 4 },
}
