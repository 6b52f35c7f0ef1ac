--- The models of a run on one parameter table: autoencoder, text encoder, diffusion transformer.
-- They are made from the baked recipe, or from its copy in a checkpoint. This adds nodes and
-- computes nothing.
-- @module moonreel.models.pipeline
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local families = require "moonreel.recipe.families"
local flow = require "moonreel.diffusion.flow"
local interface = require "moonreel.models.interface"
local losses = require "moonreel.losses"
local matrices = require "moonreel.optim.matrices"

local pipeline = {}

-- the module of a type and its map of weights, if it has one; an error in their files names the
-- type
local function part(record, of)
  local family = families.of(record, of)
  local good, made, map = pcall(function() return family:open "init", family:open "weights" end)
  if not good then
    if type(made) == "table" and made.message then
      made.message = ("%s.type = %s: %s"):format(record, of, made.message)
    end
    error(made, 0)
  end
  return made, map
end

local Pipeline = {}
Pipeline.__index = Pipeline

--- Do these settings train an autoencoder by itself?
---@param settings table  baked
function pipeline.reconstructs(settings)
  return part("model", settings.model.type).trained ~= nil
end

-- an autoencoder that trains has neither text nor diffusion
local function autoencoder_alone(self, family, map)
  local config = self.config
  self.autoencoder = family.trained(self.params, config.model,
    {dtype = self.dtype, compat = config.compat})
  self.model, self.text, self.reconstructs = self.autoencoder, { max_length = 0 }, true
  self.losses = losses.new(self.params, config.losses or {}, family.loss_weights or {})
  self.maps[1] = map
end

-- the second text encoder, if the model takes its vector
local function vector_of(config, encoder)
  local folder = config.clip.from_pretrained
  if not encoder.vector and folder then
    base.raise("MR_E_RECIPE", ("clip.from_pretrained = %s is not a CLIP: it gives no vector of a "
      .. "caption; try: the folder of a CLIP, and this one for text_encoder"):format(
      folder))
  elseif not (encoder.apart and encoder.vector) then
    base.raise("MR_E_RECIPE", ("clip.type = %s gives no vector of a caption from separate "
      .. "weights; try: text_encoder.type = %s"):format(config.clip.type, config.clip.type))
  elseif not part("model", config.model.type).takes_vector then
    base.raise("MR_E_RECIPE", ("clip.type = %s: model.type = %s does not use a vector of a "
      .. "caption; try: clip = recipe.none"):format(config.clip.type, config.model.type))
  end
  return encoder
end

-- values that the parts decide; a recipe with other values is wrong
local function agreed(model, parts)
  local function same(field, mine, theirs)
    if model[field] == nil then
      model[field] = mine
    end
    if model[field] ~= mine then
      base.raise("MR_E_RECIPE", ("model.%s is %s, but %s gives %d; try: model.%s = %d"):format(
        field,
        tostring(model[field]), theirs, mine, field, mine))
    end
  end
  same("in_channels", parts.channels, "the autoencoder")
  same("caption_channels", parts.width, "the text encoder")
  same("model_max_length", parts.max_length, "the text encoder")
  if parts.vector then
    same("vector_channels", parts.vector, "the second text encoder")
  end
end

--- Declares all parameters.
---@param config table  model, vae, text_encoder, clip (nil: no vector of a caption): each with its
---   type and the fields of that type; compat; losses of an autoencoder that trains
---   (vae_loss_config)
---@param dtype string   compute dtype of the run
---@param cut table|function|nil   how trained parameters are divided, for params:seal, or a
---   function of the pipeline that returns this when all is declared
---@param split mr.Split|nil  ranks that share the layers of the model
---@return mr.Pipeline  flow: of its model (moonreel.diffusion.flow); matrices: patterns of the
---   parameters that Muon updates by default; reconstructs: the model is an autoencoder that trains
---   by `losses`, and there are no other models
function pipeline.new(config, dtype, cut, split)
  local params = G.params(dtype)
  local self = setmetatable({params = params, dtype = dtype, config = config, maps = {}}, Pipeline)
  local trainee, its_map = part("model", config.model.type)
  local function seal()
    params:seal(type(cut) == "function" and cut(self) or type(cut) == "table" and cut or nil)
    return self
  end
  if trainee.trained then
    autoencoder_alone(self, trainee, its_map)
    return seal()
  end
  local function make(record, fields, by)
    local made, map = part(record, fields.type)
    -- separate weights are not start weights
    self.maps[#self.maps + 1] = not made.apart and map or nil
    return interface.check(record, fields.type,
      made.new(params, fields, {dtype = dtype, compat = config.compat, split = by}))
  end
  self.autoencoder = make("vae", config.vae)
  self.text = make("text_encoder", config.text_encoder)
  self.vector = config.clip and vector_of(config, make("clip", config.clip)) or nil
  if split then
    self:share_texts(split)
  end
  local model = {compat = config.compat}
  for k, v in pairs(config.model) do
    model[k] = v
  end
  local parts = {channels = self.autoencoder.channels, width = self.text.width,
    max_length = self.text.max_length, vector = self.vector and self.vector.width}
  local agree = trainee.agree or agreed
  agree(model, parts)
  self.model, self.flow = make("model", model, split), flow.of(trainee.flow)
  self.maps[#self.maps + 1] = self.model.map
  -- for a model without its own null caption, it is the encoding of the empty text
  self.null_encoded = self.model.null_caption == nil
  self.matrices = trainee.matrices
  return seal()
end

-- the losses of an autoencoder that trains
local function losses_of(settings)
  local config = settings:plain("vae_loss_config")
  if settings.discriminator.type then
    config.adversary = {discriminator = settings:plain("discriminator"),
      gen = settings:plain("gen_loss_config"), disc = settings:plain("disc_loss_config")}
  end
  return config
end

--- The models of settings, as in `new`.
---@param settings table  baked; its model, vae, text_encoder and compat
---@param dtype string    compute dtype of the run, see pipeline.dtype
---@param cut table|nil    division for ranks (moonreel.optim.ranks.cut); the optimizer's is added
---@param split mr.Split|nil  from moonreel.comm.mesh
---@return mr.Pipeline
function pipeline.of(settings, dtype, cut, split)
  return pipeline.new({model = settings:plain("model"), vae = settings:plain("vae"),
    text_encoder = settings:plain("text_encoder"),
    clip = settings.clip.type and settings:plain("clip") or nil,
    losses = losses_of(settings),
    compat = settings.compat ~= nil}, dtype,
    function(pipe)
      -- a slice of a matrix is not a matrix for Muon
      return split and split.ranks > 1 and cut or matrices.cut(settings, pipe, cut)
    end, split)
end

--- The autoencoder of settings with its weights in a separate file, for moonreel.codec: it encodes
-- and decodes clips and does not train.
---@param settings table  baked; model is an autoencoder
---@param dtype string    compute dtype
---@param path string|nil  of its weights; nil: not known
---@return table  autoencoder, dtype, config: as in mr.Pipeline
function pipeline.coder(settings, dtype, path)
  local auto = part("model", settings.model.type).new(nil, settings:plain("model"),
    {dtype = dtype, compat = settings.compat ~= nil})
  return {autoencoder = auto, dtype = dtype, config = {vae = {from_pretrained = path}}}
end

--- The dtype in which a device computes under these settings.
---@param settings table
---@param device mr.Device
---@return string  "f32" or "bf16"
function pipeline.dtype(settings, device)
  return device:compute(settings.dtype == "fp32" and "f32" or "bf16")
end

--- Number of trained and of all parameters, over all ranks that share layers.
function Pipeline:counts()
  local trained, all = 0, 0
  for _, p in ipairs(self.params:list()) do
    if not p.buffer then
      local count = T.count(p.shape)
      all = all + count
      if not p.frozen then
        trained = trained + count
      end
    end
  end
  return trained, all
end

-- ---- captions

--- The separate text encoders.
---@return table[]  {record, encoder}
function Pipeline:texts_apart()
  local list = { self.text.apart and { "text_encoder", self.text } or nil }
  list[#list + 1] = self.vector and { "clip", self.vector } or nil
  return list
end

--- Lets ranks share the layers of separate text encoders that can be divided.
---@param split mr.Split
function Pipeline:share_texts(split)
  for _, row in ipairs(self:texts_apart()) do
    if row[2].share_layers then
      row[2]:share_layers(split)
    end
  end
end

-- the tokens of a batch's captions and null captions for each encoder; null captions come after the
-- captions or in their places
local function tokens_of(self, captions, nulls, of_vector)
  local tokens = self.text:tokens(self.null_encoded and nulls or captions)
  if self.vector then
    tokens.vector = self.vector:tokens(of_vector).y
  end
  return tokens
end

-- captions, with dropped ones replaced by the null caption
local function left_of(captions, dropped)
  local list = {}
  for b, caption in ipairs(captions) do
    list[b] = dropped and dropped[b] and "" or caption
  end
  return list
end

--- Captions in the form for `inputs`.
---@param captions string[]
---@param dropped boolean[]|nil  captions to replace by the null caption; if the model has its own,
---   the graph does that
---@param vectorless boolean[]|nil  the same for the second encoder
---@return table  from the text encoder; vector [B, 1, width]
function Pipeline:tokens(captions, dropped, vectorless)
  return tokens_of(self, captions, left_of(captions, dropped), left_of(captions, vectorless))
end

--- Captions for a pass with guidance.
---@param captions string[]
---@param copies integer  1 or 2: followed by the null caption
function Pipeline:guided_tokens(captions, copies)
  local all = table.move(captions, 1, #captions, 1, {})
  for i = #captions + 1, copies * #captions do
    all[i] = ""
  end
  return tokens_of(self, captions, all, all)
end

-- rows of a tensor by number, from 1
local function rows_of(t, numbers)
  local out = T.new(t.dtype, {#numbers, table.unpack(t.shape, 2)})
  for i, n in ipairs(numbers) do
    out:slice(0, i - 1, i):copy_from(t:slice(0, n - 1, n))
  end
  return out
end

--- Captions as from `tokens`; separate encoders encode each different one once.
---@param captions string[]
---@return table
function Pipeline:each_text(captions)
  if not self.text.apart then
    return self:tokens(captions)
  end
  local few, number, numbers = {}, {}, {}
  for i, caption in ipairs(captions) do
    if not number[caption] then
      few[#few + 1], number[caption] = caption, #few + 1
    end
    numbers[i] = number[caption]
  end
  local tokens = self:tokens(few)
  for name, t in pairs(tokens) do
    tokens[name] = rows_of(t, numbers)
  end
  return tokens
end

--- Declares the inputs of a batch of B captions.
---@param copies integer|nil  of a pass with guidance
function Pipeline:inputs(g, B, copies)
  local all = B * (copies or 1)
  local inputs = self.text:inputs(g, self.null_encoded and all or B)
  inputs.vector = self.vector and g:input("text_vector", self.vector.dtype,
    {all, 1, self.vector.width}) or nil
  return inputs
end

--- Does the model have an input besides text and time: "cond", "guidance"?
---@param name string
---@return boolean
function Pipeline:takes(name)
  local shapes = self.model.conditions and self.model:conditions {1, 1, 1, 1, 1} or {}
  return shapes[name] ~= nil
end

--- Declares the inputs of a model besides text and time, if it has any.
---@param size integer[]  of its latents [B, C, T, H, W]
---@return table<string, mr.Value>  by name
function Pipeline:conditions(g, size)
  local given = {}
  for name, shape in pairs(self.model.conditions and self.model:conditions(size) or {}) do
    given[name] = g:input(name, "f32", shape)
  end
  return given
end

--- Sets them on a program.
---@param tokens table  from tokens or guided_tokens
function Pipeline:set(prog, tokens)
  self.text:set(prog, tokens)
  if self.vector then
    prog:set("text_vector", tokens.vector)
  end
end

-- ---- passes

--- One pass of the diffusion model over text from the encoder.
---@param io table  as in stdit3 forward, without y and text_len; text: from inputs; drop: bool [B]
---   or nil: captions to replace by the null caption of the model, if it has one
function Pipeline:predict(g, io)
  local y = self.text:forward(g, io.text)
  if io.drop and not self.null_encoded then
    y = self.model:drop_caption(g, y, io.drop)
  end
  return self.model:forward(g, setmetatable({y = y, text_len = io.text.len,
    vector = io.text.vector}, {__index = io}))
end

--- One pass with guidance: the first half of the batch has text from the encoder, the rest the null
-- caption.
---@param io table  as in predict; copies 1 or 2; text_len: i32 [copies x B], tokens in use of both
---   halves
function Pipeline:predict_guided(g, io)
  local y = self.text:forward(g, io.text)
  if io.copies == 2 and not self.null_encoded then
    y = G.concat({y, self.model:null_caption(g, y.shape[1], y.shape[2])}, 0)
  end
  return self.model:forward(g, setmetatable({y = y, vector = io.text.vector},
    {__index = io}))
end

return pipeline
