-- Open-Sora 1.2 at a size of seconds on a CPU: adapt, its three stages and the seven of the 28,000
-- GPU-hour reproduction in a row over the demo's clips, with its video autoencoder, T5 and frame
-- masks. Weights of both are random, from
-- `moonreel datasets/demo/build_weights.lua build/demo/weights`; clips are longer than 17 frames,
-- the shortest video that this reference trains:
-- `moonreel datasets/demo/build.lua build/demo/long 1 18`, then
-- `moonreel data ingest build/demo/long/demo.csv -o build/demo/long.mrx`.
local stages = { { name = "adapt", recipe = "opensora-1.2/adapt", plugin = recipe.none } }

-- the stages that one folder has, each from the weights of the one before
local function follow(folder, prefix, last)
  for i = 1, last do
    stages[#stages + 1] = { name = prefix .. i, recipe = folder .. "/stage" .. i,
      ckpt_path = recipe.previous, plugin = recipe.none, wandb = false }
  end
end
follow("opensora-1.2", "stage", 3)
follow("opensora-1.2/lambda", "lambda", 7)

return recipe {
  name = "opensora12",
  stages = stages,
  dataset = { data_path = "build/demo/long.mrx" },
  resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } },
  bucket_config = recipe.replace { ["32px"] = { [1] = { 1.0, 8 }, [17] = { 1.0, 4 } } },
  num_workers = 0,

  vae = { from_pretrained = "build/demo/weights/vae" },
  text_encoder = { from_pretrained = "build/demo/weights/t5", model_max_length = 56 },
  model = { type = "STDiT3", depth = 1, hidden_size = 32, num_heads = 2, caption_channels = 32,
    model_max_length = 56 },

  warmup_steps = 2, steps = 8, log_every = 4,
  sampling = { frames = 17, height = 32, width = 32, fps = 8, batch_size = 4 },
}
