--- The models of a run on one parameter table: autoencoder, text encoder, diffusion transformer.
-- Made from the baked recipe, or from what a checkpoint stored of it. Adds nodes, computes nothing.
-- @module moonreel.models.pipeline
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local families = require "moonreel.recipe.families"

local pipeline = {}

-- the part of a type, and its map of weights, if it has one
local function part(record, type)
  local family = families.of(record, type)
  return family:open "init", family:open "weights"
end

local Pipeline = {}
Pipeline.__index = Pipeline

--- Is what these settings train an autoencoder, all by itself?
---@param settings table  baked
function pipeline.reconstructs(settings)
  return part("model", settings.model.type).trained ~= nil
end

-- an autoencoder that trains has neither text nor diffusion
local function autoencoder_alone(self, family, map)
  self.autoencoder = family.trained(self.params, self.config.model)
  self.model, self.text = self.autoencoder, { max_length = 0 }
  self.reconstructs, self.kl_weight = true, self.config.kl_weight or 0
  self.maps[1] = map
end

--- Declare all parameters.
---@param config table  model, vae, text_encoder: each its type and the fields of that type; compat;
---   kl_weight of an autoencoder that trains
---@param dtype string   compute dtype of the run
---@param cut table|nil   how what trains is cut for ranks, as params:seal takes it
---@return mr.Pipeline  reconstructs: the model is an autoencoder that trains, and there is no more
function pipeline.new(config, dtype, cut)
  local params = G.params(dtype)
  local self = setmetatable({params = params, dtype = dtype, config = config, maps = {}}, Pipeline)
  local trainee, its_map = part("model", config.model.type)
  if trainee.trained then
    autoencoder_alone(self, trainee, its_map)
    params:seal(cut)
    return self
  end
  local function make(record, fields)
    local family, map = part(record, fields.type)
    -- weights that lie apart are nobody's start weights
    self.maps[#self.maps + 1] = not family.apart and map or nil
    return family.new(params, fields, {dtype = dtype, compat = config.compat})
  end
  self.autoencoder = make("vae", config.vae)
  self.text = make("text_encoder", config.text_encoder)
  local model = {compat = config.compat}
  for k, v in pairs(config.model) do
    model[k] = v
  end
  -- what the parts decide; a recipe that says otherwise is wrong
  local function agree(field, mine, theirs)
    if model[field] == nil then
      model[field] = mine
    end
    if model[field] ~= mine then
      base.raise("MR_E_RECIPE", ("model.%s is %s, %s gives %d; try: model.%s = %d"):format(field,
        tostring(model[field]), theirs, mine, field, mine))
    end
  end
  agree("in_channels", self.autoencoder.channels, "the autoencoder")
  agree("caption_channels", self.text.width, "the text encoder")
  agree("model_max_length", self.text.max_length, "the text encoder")
  self.model = make("model", model)
  params:seal(cut)
  return self
end

--- The models of settings, as `new`.
---@param settings table  baked; its model, vae, text_encoder and compat
---@param dtype string    compute dtype of the run, see pipeline.dtype
---@param cut table|nil    as `new` takes it
---@return mr.Pipeline
function pipeline.of(settings, dtype, cut)
  return pipeline.new({model = settings:plain("model"), vae = settings:plain("vae"),
    text_encoder = settings:plain("text_encoder"),
    kl_weight = settings.vae_loss_config.kl_loss_weight,
    compat = settings.compat ~= nil}, dtype, cut)
end

--- The dtype that a device computes in where settings ask for theirs.
---@param settings table
---@param device mr.Device
---@return string  "f32" or "bf16"
function pipeline.dtype(settings, device)
  return device:compute(settings.dtype == "fp32" and "f32" or "bf16")
end

--- Number of trained and of all parameters.
function Pipeline:counts()
  local trained, all = 0, 0
  for _, p in ipairs(self.params:list()) do
    if not p.buffer then
      all = all + p.count
      if not p.frozen then
        trained = trained + p.count
      end
    end
  end
  return trained, all
end

--- One pass of the diffusion model over text from the encoder.
---@param io table  as stdit3 forward without y and text_len; text: inputs of the encoder;
--   drop: bool [B] or nil: captions replaced by the null caption
function Pipeline:predict(g, io)
  local y = self.text:forward(g, io.text)
  if io.drop then
    y = self.model:drop_caption(g, y, io.drop)
  end
  return self.model:forward(g, setmetatable({y = y, text_len = io.text.len}, {__index = io}))
end

--- One pass with guidance: text of the first half of the batch from the encoder, the null caption
-- for the rest.
---@param io table  as predict; copies 1 or 2; text_len: i32 [copies x B], tokens in use of both
---   halves
function Pipeline:predict_guided(g, io)
  local y = self.text:forward(g, io.text)
  if io.copies == 2 then
    y = G.concat({y, self.model:null_caption(g, y.shape[1], y.shape[2])}, 0)
  end
  return self.model:forward(g, setmetatable({y = y}, {__index = io}))
end

return pipeline
