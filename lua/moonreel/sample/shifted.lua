--- Renderings along the flow of Open-Sora 2.0: prompts with frame rate and motion score, frames
-- given at the ends of a clip, separate guidance by text and by condition, or guidance as an input
-- of the model. Ref: opensora-2.0.md 16.
-- @module moonreel.sample.shifted
local blame = require "moonreel.settings.blame"
local condition = require "moonreel.diffusion.condition"
local generators = require "moonreel.data.generators"
local given = require "moonreel.sample.given"
local opensora20 = require "moonreel.data.opensora20"
local prompt = require "moonreel.caption.prompt"
local request = require "moonreel.sample.request"
local shifted = require "moonreel.diffusion.shifted"

local along = {}

-- defaults of a rendering
local STEPS <const>, GUIDANCE <const> = 50, 4

local GREATEST_SEED <const> = 0xffffffff

-- fields of sampling that only renderings of Open-Sora 1.2 use
local OF_12 = { "aes", "align", "camera_motion", "condition_frame_edit", "condition_frame_length",
  "flow", "loop", "mask_strategy" }

-- ---- request ----

--- Pixels of a token's side.
---@param pipe mr.Pipeline
---@return integer
function along.cell(pipe) return pipe.autoencoder.side * pipe.model.config.patch_size end

-- seeds as in the reference: drawn for each rendering, or counted up from a seed that is not 0
local function reference_seeds(s)
  local fixed, generator = s.sampling.seed, generators.python(s.seed)
  return function(k)
    return fixed and (fixed == 0 and 0 or fixed + k) or generator:randint(0, GREATEST_SEED)
  end
end

--- Seeds of the renderings of all prompts, one after another.
---@param o table       seeds, prompts
---@param s table       settings
---@param many integer  renderings of each prompt and seed
---@return integer[][]  of each prompt
function along.seeds(o, s, many)
  local asked = o.seeds or not s:origin("sampling.seeds"):find "^default"
    and s:plain "sampling.seeds" or nil
  local theirs = s.compat and not asked and reference_seeds(s)
  local fixed, all = asked or { s.sampling.seed or s.sampling.seeds[1] }, {}
  for i in ipairs(o.prompts) do
    all[i] = {}
    for _, seed in ipairs(fixed) do
      for k = 0, many - 1 do
        table.insert(all[i], theirs and theirs(k) or seed + k)
      end
    end
  end
  return all
end

--- Lists of the request that it does not use, and what to try.
along.not_taken = { strategies = "--cond-type with --ref to give frames" }

--- Reads its options, apart from sizes and rates.
---@param o table   options for sampler:render
---@param s table   settings: sampling, compat
---@return table    steps, shift, flow_shift, kind (of the condition), method, guidance,
---   guidance_img, oscillations, plain, compat; causal: the recipe's value for the autoencoder
function along.read(o, s)
  local c = s.sampling
  local distilled, causal = (o.method or c.method) == "distill", nil
  if s.compat then
    -- the recipe's value, whatever the autoencoder is
    causal = c.is_causal_vae
  end
  return { steps = o.steps or c.num_steps or STEPS, shift = c.shift ~= false,
    flow_shift = c.flow_shift, kind = o.cond_type or c.cond_type or "t2v",
    method = distilled and "distill" or "i2v", guidance = o.guidance or c.guidance or GUIDANCE,
    guidance_img = c.guidance_img or 1, text_osci = not distilled and c.text_osci,
    image_osci = c.image_osci, scale_temporal_osci = c.scale_temporal_osci, plain = o.plain,
    compat = s.compat ~= nil, causal = causal }
end

--- Words, paths and negative prompt of a prompt.
---@param row table  prompt; reference, negative: texts, or nil
---@param r table    the request: save_fps, plain
---@param s table    settings
---@return table     words, paths, negative
function along.item(row, r, s)
  local words = r.plain and row.prompt
    or opensora20.prompt(row.prompt, r.save_fps, s.sampling.motion_score)
  return { words = words, paths = prompt.references(row.reference),
    negative = row.negative or "" }
end

-- ---- checks ----

local function refuse(self, field, ...)
  blame.raise(self.defaults, field, "MR_E_USAGE", ...)
end

-- refuses fields of the other way to render, and fields that this program does not support
local function check_fields(self)
  local c = self.defaults.sampling
  request.refuse(self.defaults, OF_12, "--cond-type with --ref to give frames, "
    .. "--motion-score for motion")
  if c.prompt_refine then
    refuse(self, "sampling.prompt_refine", "sampling.prompt_refine: prompts would be refined by a "
      .. "service, which this program does not use; try: refined texts by --prompt-path FILE")
  elseif c.motion_score and not tonumber(c.motion_score) then
    refuse(self, "sampling.motion_score", "sampling.motion_score = %s: a score for each prompt "
      .. "would come from a service, which this program does not use; try: a number from 1 to 15",
      c.motion_score)
  end
end

-- compares the recipe's values about the models with the models
local function check_agrees(self)
  local s, step, causal = self.defaults, condition.frames_of(self.pipe.autoencoder)
  for _, row in ipairs {
    { "sampling.temporal_reduction", s.sampling.temporal_reduction, step, "the number of "
      .. "frames in a latent frame of the autoencoder" },
    { "sampling.is_causal_vae", s.sampling.is_causal_vae, causal, "for the autoencoder "
      .. "it" },
  } do
    local field, said, is, what = table.unpack(row, 1, 4)
    if said ~= nil and said ~= is and not (s.compat and field == "sampling.is_causal_vae") then
      refuse(self, field, "%s = %s, but %s is %s; try: %s = %s", field, tostring(said), what,
        tostring(is), field, tostring(is))
    end
  end
end

-- the reference's generator takes no larger seeds
local function check_seeds(self, r)
  for _, item in ipairs(self.defaults.compat and r.items or {}) do
    if item.seed > GREATEST_SEED then
      refuse(self, "sampling.seed", "sampling.seed: a rendering has seed %d, but under compat "
        .. "seeds have 32 bits; expected at most %d; try: compat=none", item.seed, GREATEST_SEED)
    end
  end
end

--- Refuses requests that cannot be rendered.
---@param self mr.Sampler
---@param r table  the request
function along.check(self, r)
  check_fields(self)
  if r.method == "distill" and not self.pipe:takes "guidance" then
    refuse(self, "sampling.method", "sampling.method = distill passes a guidance of %g to the "
      .. "model, but model.guidance_embed is false; try: sampling.method = i2v", r.guidance)
  elseif r.kind ~= "t2v" and not self.pipe:takes "cond" then
    refuse(self, "sampling.cond_type", "sampling.cond_type = %s gives the model frames, but "
      .. "model.cond_embed is false; try: sampling.cond_type = t2v", r.kind)
  end
  check_agrees(self)
  check_seeds(self, r)
  blame.field(self.defaults, "sampling.cond_type", given.parts, self.pipe.autoencoder, r)
end

-- ---- rendering ----

--- The values on which the program of a step depends, apart from its sizes: the number of model
-- calls.
---@param r table               the request
---@param any boolean|nil       frames are given; nil: as the condition allows
---@return table                copies; key: all of these
function along.way(r, any)
  if any == nil then
    any = r.kind ~= "t2v"
  end
  local copies = 2
  if r.method == "distill" or not any and r.guidance == 1 then
    copies = 1
  elseif any then
    copies = 3
  end
  return { copies = copies, key = ("c%d"):format(copies) }
end

--- Adds the nodes of a step.
---@param self mr.Sampler
---@param g mr.Graph
---@param shape table  dims of the latents; height, width; way
function along.nodes(self, g, shape)
  local pipe, dims, copies = self.pipe, shape.dims, shape.way.copies
  local text = pipe:inputs(g, dims[1], copies)
  local conditions = pipe:conditions(g, { copies * dims[1], table.unpack(dims, 2) })
  shifted.step(g, { dims = dims, copies = copies, predict = function(x, t)
    return pipe:predict_guided(g, { x = x, t = t, text = text, text_len = text.len,
      copies = copies, cond = conditions.cond, guidance = conditions.guidance,
      sequence = self.sequence })
  end })
end

--- The conditions of a rendering.
---@param self mr.Sampler
---@param item table  of the request
---@param r table     the request
---@return table      parts: from moonreel.sample.given; kept(loop): 0, no piece follows
function along.conditions(self, item, r)
  local parts = blame.field(self.defaults, "sampling.cond_type", given.read, self.codec, item, r)
  return { parts = parts, kept = function() return 0 end }
end

--- Frames at both ends of a clip that are not shown.
---@param self mr.Sampler
---@param r table  the request
---@return integer first, integer last
function along.hidden(self, r) return given.copies(self.pipe.autoencoder, r) end

-- texts of all copies: the prompts, then the negative ones
local function texts_of(items, B, copies)
  local texts = {}
  for k = 0, copies - 1 do
    for b = 1, B do
      local item = items[math.min(b, #items)]
      texts[k * B + b] = k == 0 and item.words or item.negative
    end
  end
  return texts
end

-- writes the given frames into the latents again; the reference does so for the first rendering
-- only
local function put_back(z, r, items)
  if r.kind:find "^i2v" then
    for b = 1, r.compat and 1 or #items do
      condition.put_back(z, b - 1, items[b].conditions.parts)
    end
  end
end

--- Latents of at most B items; empty places repeat the last one.
---@param self mr.Sampler
---@param r table         the request
---@param items table[]   with conditions
---@return mr.Tensor      f32 [B, C, t, h, w]
function along.latents(self, r, items)
  local parts, any = {}, false
  for b = 1, r.batch do
    parts[b] = items[math.min(b, #items)].conditions.parts
    any = any or #parts[b] > 0
  end
  local p = self:program(r, along.way(r, any))
  local copies = p.way.copies
  self.pipe:set(p.step, self.pipe:each_text(texts_of(items, r.batch, copies)))
  if self.pipe:takes "cond" then
    p.step:set("cond", condition.of_copies(p.dims, parts, copies))
  end
  local z = shifted.run(p.step, { z = self:noise(r, items, "sample_noise", 0, 0), copies = copies,
    times = shifted.times(self.settings, self.pipe, self:size(r), r), guided = r, kind = r.kind,
    takes_guidance = self.pipe:takes "guidance", watch = self:watch(r, items) })
  put_back(z, r, items)
  return z
end

return along
