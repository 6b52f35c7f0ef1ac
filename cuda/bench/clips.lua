-- moonreel cuda/bench/clips.lua DIR: write three pictures, an index of them, random weights of a
-- tiny video autoencoder and T5, a recipe small.lua of their size, and a cache of latents and text
-- features, so that its runs need no decoder.
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local job = require "moonreel.job"
local settings = require "moonreel.settings"
local weights = dofile "datasets/demo/weights.lua"

local SIDE = 16

local RECIPE = [[return recipe.extend("opensora-1.2/stage1") {
  order = "own", plugin = recipe.none, grad_checkpoint = false, cached = true,
  dataset = { data_path = "%s/clips.mrx", draw_epochs = 1 },
  resolutions = { small = { pixels = 256, aspects = { { 1.0, 16, 16 } } } },
  bucket_config = recipe.replace { small = { [1] = { 1.0, 1 } } },
  vae = { from_pretrained = "%s/vae" },
  text_encoder = { from_pretrained = "%s/t5", model_max_length = 56 },
  model = recipe.replace { type = "STDiT3", depth = 1, hidden_size = 32, num_heads = 2,
    caption_channels = 32, model_max_length = 56, input_sq_size = 16 },
  num_workers = 1, warmup_steps = 1, steps = 4, ckpt_every = 1,
}]]

local dir = ...
base.make_dir(dir)
local list = { "path,text" }
for i = 1, 3 do
  local pixels = {}
  for k = 1, 3 * SIDE * SIDE do
    pixels[k] = string.char((k * i * 7 + k // 256 * 31) % 256)
  end
  data.png(("%s/%d.png"):format(dir, i), table.concat(pixels), { height = SIDE, width = SIDE })
  list[i + 1] = ("%d.png,picture %d"):format(i, i)
end
base.replace_file(dir .. "/clips.csv", table.concat(list, "\n") .. "\n")
data.ingest(dir .. "/clips.csv", dir .. "/clips.mrx")
weights.vae(dir .. "/vae", 3)
weights.t5(dir .. "/t5", 4)
base.replace_file(dir .. "/small.lua", RECIPE:format(dir, dir, dir))
job.run(settings.bake(dir .. "/small.lua", { "job=extract", "cached=false",
  "save_text_features=true" }), { write = print })
