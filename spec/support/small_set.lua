--- Stills and clips of 16 x 16 with two captions each, an index of them, random weights of a tiny
-- video autoencoder and T5, and a recipe of Open-Sora 1.2 of their size.
local data = require "moonreel.data"
local folder = require "spec.support.folder"
local weights = require "datasets.demo.weights"

local small_set = {}

local CLIPS, SIDE = 14, 16

local RECIPE = [[return recipe.extend("opensora-1.2/stage1") {
  -- the reference's own times lose clips of fewer than 17 frames
  order = "own", scheduler = { shift = 2 },
  plugin = recipe.none, grad_checkpoint = false,
  resolutions = { small = { pixels = 256, aspects = { { 1.0, 16, 16 } } } },
  bucket_config = recipe.replace { small = { [1] = { 0.5, 3 }, [5] = { 0.7, 2 }, [9] = { 1.0, 2 } } },
  text_encoder = { model_max_length = 56 },
  model = recipe.replace { type = "STDiT3", depth = 1, hidden_size = 32, num_heads = 2,
    caption_channels = 32, model_max_length = 56, input_sq_size = 16 },
  num_workers = 1, threads = 1, warmup_steps = 2, epochs = 2, log_every = 1000,
}]]

--- Makes them in a folder of their own.
---@return table dir       of spec.support.folder; small.lua is the recipe
---@return string[] words  that point the recipe to the data
function small_set.new()
  local dir = folder.new()
  dir:write("small.lua", RECIPE)
  local list = { "path,text,text_2" }
  for i = 1, CLIPS do
    local frames = i % 5 == 0 and 1 or i % 4 == 0 and 6 or 12
    local pixels, name = {}, ("clip-%02d.%s"):format(i, frames == 1 and "png" or "mp4")
    for k = 1, frames * 3 * SIDE * SIDE do
      pixels[k] = string.char((k * i * 7 + k // 256 * 31) % 256)
    end
    local write = frames == 1 and data.png or data.encode
    write(dir.path .. "/" .. name, table.concat(pixels), { height = SIDE, width = SIDE,
      frames = frames > 1 and frames or nil, fps = frames > 1 and 8 or nil })
    list[i + 1] = ("%s,clip %d moving %s,a circle %d"):format(name, i,
      i % 2 == 0 and "up" or "to the left on a red background", i)
  end
  dir:write("clips.csv", table.concat(list, "\n") .. "\n")
  data.ingest(dir.path .. "/clips.csv", dir.path .. "/clips.mrx")
  weights.vae(dir.path .. "/vae", 3)
  weights.t5(dir.path .. "/t5", 4)
  local words = { "dataset.data_path=" .. dir.path .. "/clips.mrx",
    "vae.from_pretrained=" .. dir.path .. "/vae",
    "text_encoder.from_pretrained=" .. dir.path .. "/t5", "outputs=" .. dir.path .. "/runs" }
  return dir, words
end

return small_set
