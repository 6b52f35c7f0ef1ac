--- Recipes of Open-Sora 2.0 at tiny sizes for specs: fields that override a shipped recipe, and
-- random weights of all models that it names.
local kinds = require "moonreel.recipe.kinds"
local settings = require "moonreel.settings"
local weights = require "datasets.demo.weights"

local tiny20 = {}

local MODEL = { hidden_size = 32, num_heads = 2, depth = 1, depth_single_blocks = 1,
  axes_dim = { 4, 6, 6 }, mlp_ratio = 2, context_in_dim = 32, vec_in_dim = 32 }

local HUNYUAN = { block_out_channels = { 8, 8, 16, 16 }, layers_per_block = 1,
  norm_num_groups = 4 }

local DC_AE = { model_name = "recipe.none", latent_channels = 16, widths = { 8, 8, 8, 8, 16, 32 },
  encoder_blocks = { 1, 0, 0, 0, 0, 1 }, decoder_blocks = { 1, 0, 0, 0, 0, 1 },
  attention_levels = 1 }

local PICTURES = { ch = 8, ch_mult = { 1, 1, 2, 2 }, num_res_blocks = 1, norm_groups = 4 }

-- fields of a record as arguments
local function add(list, record, fields)
  for name, value in pairs(fields) do
    list[#list + 1] = ("%s.%s=%s"):format(record, name, type(value) == "string" and value
      or kinds.show(value))
  end
end

--- The arguments that make a shipped recipe tiny.
---@param name string    of the recipe
---@param folder string  of the weights
---@return string[]      arguments of settings.bake
function tiny20.arguments(name, folder)
  local big = settings.bake(name)
  local list = { "dtype=fp32", "ckpt_path=" .. folder .. "/model.safetensors",
    "vae.from_pretrained=" .. folder .. "/vae.safetensors",
    "text_encoder.from_pretrained=" .. folder .. "/t5", "text_encoder.max_length=48",
    "clip.from_pretrained=" .. folder .. "/clip" }
  add(list, "model", MODEL)
  if big.vae.type == "dc_ae" then
    add(list, "vae", DC_AE)
    list[#list + 1] = "model.in_channels=16"
  else
    add(list, "vae", HUNYUAN)
  end
  if big.sampling.use_t2i2v then
    add(list, "img_flux", MODEL)
    add(list, "img_flux_ae", PICTURES)
    list[#list + 1] = "img_flux.from_pretrained=" .. folder .. "/flux.safetensors"
    list[#list + 1] = "img_flux_ae.from_pretrained=" .. folder .. "/ae.safetensors"
  end
  return list
end

--- Bakes one, and writes the weights that it names.
---@param name string
---@param folder string
---@param more string[]|nil  further arguments
---@return table settings, string[] arguments
function tiny20.make(name, folder, more)
  local list = tiny20.arguments(name, folder)
  table.move(more or {}, 1, #(more or {}), #list + 1, list)
  local s = settings.bake(name, list)
  weights.mmdit(s.ckpt_path, s:plain "model", 1)
  weights.autoencoder(s.vae.from_pretrained, s:plain "vae", 2)
  weights.t5(folder .. "/t5", 3)
  weights.clip(folder .. "/clip", 4)
  if s.sampling.use_t2i2v then
    weights.mmdit(s.img_flux.from_pretrained, s:plain "img_flux", 5)
    weights.autoencoder(s.img_flux_ae.from_pretrained, s:plain "img_flux_ae", 6)
  end
  return s, list
end

return tiny20
