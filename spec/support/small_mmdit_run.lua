--- A recipe of a small MMDiT with conditions, over the clips of spec.support.small_set, with an
-- autoencoder, a T5 and a CLIP of random weights.
local small_mmdit = require "spec.support.small_mmdit"
local small_set = require "spec.support.small_set"
local weights = require "datasets.demo.weights"

local small_mmdit_run = {}

local RECIPE = [[return recipe {
  resolutions = { small = { pixels = 256, aspects = { { 1.0, 16, 16 } } } },
  bucket_config = { small = { [1] = { 0.5, 3 }, [5] = { 0.7, 2 }, [9] = { 1.0, 2 } } },
  vae = { type = "OpenSoraVAE_V1_2" },
  text_encoder = { type = "t5", model_max_length = 24 },
  clip = { type = "clip", model_max_length = 24 },
  model = { type = "flux", %s },
  condition_config = { t2v = 1, i2v_head = 2, i2v_loop = 1, i2v_tail = 1 },
  dropout_ratio = { t5 = 0.3, clip = 0.3 },
  optim = { lr = 1e-3 }, seed = 3, dtype = "fp32",
  num_workers = 1, threads = 1, epochs = 2, log_every = 1000,
}]]

-- fields of the model that match the parts, as a recipe writes them
local function model()
  local c, list = {}, {}
  for name, value in pairs(small_mmdit) do
    c[name] = value
  end
  c.in_channels, c.context_in_dim, c.vec_in_dim, c.patch_size = 4, 32, 32, 1
  c.cond_embed, c.guidance_embed, c.axes_dim = true, true, "{ 4, 6, 6 }"
  for name, value in pairs(c) do
    list[#list + 1] = ("%s = %s"):format(name, value)
  end
  table.sort(list)
  return table.concat(list, ", ")
end

--- Makes all of it.
---@return table dir       of spec.support.folder; mmdit.lua is the recipe
---@return string[] words  that point it to the data
function small_mmdit_run.new()
  local dir, words = small_set.new()
  dir:write("mmdit.lua", RECIPE:format(model()))
  weights.clip(dir.path .. "/clip", 5)
  words[#words + 1] = "clip.from_pretrained=" .. dir.path .. "/clip"
  return dir, words
end

return small_mmdit_run
