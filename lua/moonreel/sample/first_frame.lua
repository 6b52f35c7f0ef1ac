--- Renders the first frame of a clip with an image model: derives the settings of that model from
-- those of the clip, and its request. Ref: opensora-2.0.md 16.6.
-- @module moonreel.sample.first_frame
local aspects = require "moonreel.data.aspects"
local blame = require "moonreel.settings.blame"
local kinds = require "moonreel.recipe.kinds"

local first_frame = {}

-- defaults of the request, if the recipe does not set them
local RESOLUTION <const>, ASPECT <const>, GUIDANCE <const> = "768px", "16:9", 4

--- Records of the image model's settings, and their names in a recipe.
first_frame.moved = { model = "img_flux", vae = "img_flux_ae" }

--- Pixels of a latent cell of the image model's autoencoder, times cells of a token's side.
local CELL <const> = 16

-- an argument that replaces a record
local function replaced(record, fields)
  return ("%s=recipe.replace%s"):format(record, kinds.show(fields))
end

--- Settings of the image model, in place of the clip's model and autoencoder.
---@param s table       settings of the clip
---@return table settings
---@return string path  path of the weights
function first_frame.settings(s)
  local model, auto = s:plain "img_flux", s:plain "img_flux_ae"
  for field, record in pairs { ["img_flux.from_pretrained"] = model,
      ["img_flux_ae.from_pretrained"] = auto } do
    if not record.from_pretrained then
      blame.raise(s, "sampling.use_t2i2v", "MR_E_RECIPE", "sampling.use_t2i2v = true, but %s is "
        .. "not set; expected the weights of an image model; try: recipe.extend(..., "
        .. '"opensora-2.0/inference/plugins/t2i2v")', field)
    end
  end
  local path = model.from_pretrained
  model.from_pretrained = nil
  return require("moonreel.settings").with(s, { "ckpt_path=none", replaced("model", model),
    replaced("vae", auto), "sampling.temporal_reduction=none", "sampling.is_causal_vae=none",
    "sampling.height=none", "sampling.width=none" }, first_frame.moved), path
end

-- the size of img_resolution in the table for training; under compat with cells of 32 pixels that
-- of half a side
local function size_of(s, cell)
  local name, aspect = s.sampling.img_resolution or RESOLUTION, s.sampling.aspect_ratio or ASPECT
  local known = aspects.resolution(name, cell)
  for _, row in ipairs(known and known.aspects or {}) do
    if row.name == aspect then
      local share = s.compat and cell // CELL or 1
      return row.height // share, row.width // share
    end
  end
  blame.raise(s, "sampling.img_resolution", "MR_E_USAGE", "sampling.img_resolution = %s: there "
    .. "is no size of %s; expected a resolution of Open-Sora 2.0 that has this aspect; try: "
    .. "--img-resolution 768px --aspect-ratio 16:9", name, aspect)
end

--- The request for the image model.
---@param s table       settings of the clip
---@param given table   options of Sampler:request for the clip: prompts, seeds, steps, num_sample,
---   batch_size
---@param cell integer  pixels of a token's side in the clip's model
---@return table        options for Sampler:request
function first_frame.options(s, given, cell)
  local height, width = size_of(s, cell)
  return { prompts = given.prompts, seeds = given.seeds, steps = given.steps, references = {},
    num_sample = given.num_sample, batch_size = given.batch_size, frames = 1, height = height,
    width = width, method = "distill", cond_type = "t2v", guidance = GUIDANCE, plain = true,
    watch = given.watch, progress = given.progress }
end

--- Refuses, before a picture is rendered, requests that the clip cannot continue.
---@param s table       settings of the clip
---@param kind string   its visual condition
---@param files boolean whether a prompt has references
function first_frame.check(s, kind, files)
  if kind ~= "t2v" and kind ~= "i2v_head" then
    blame.raise(s, "sampling.cond_type", "MR_E_USAGE", "sampling.use_t2i2v: the picture is the "
      .. "first frame of the clip, but sampling.cond_type is %s; try: --cond-type i2v_head", kind)
  elseif files then
    blame.raise(s, "sampling.use_t2i2v", "MR_E_USAGE", "sampling.use_t2i2v: the picture is the "
      .. "first frame of the clip, but a prompt has its own references; try: "
      .. "sampling.use_t2i2v=false, or prompts without --ref")
  elseif not s.model.cond_embed then
    blame.raise(s, "model.cond_embed", "MR_E_USAGE", "sampling.use_t2i2v: the clip's model takes "
      .. "no first frame, because model.cond_embed is false; try: sampling.use_t2i2v=false")
  end
end

--- The request for the clip, which continues from the pictures.
---@param given table     options for Sampler:request
---@param pictures table  from Sampler:render
---@return table
function first_frame.goes_on(given, pictures)
  local options = {}
  for name, value in pairs(given) do
    options[name] = value
  end
  options.after, options.cond_type, options.references = pictures, "i2v_head", {}
  return options
end

return first_frame
