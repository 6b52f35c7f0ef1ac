--- Renderings along rectified flow, as in Open-Sora 1.2: prompts with scores and a text for each
-- piece, frames given by masks, guidance with the null caption.
-- @module moonreel.sample.rflow
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local conditions = require "moonreel.sample.conditions"
local lengths = require "moonreel.diffusion.lengths"
local prompt = require "moonreel.caption.prompt"
local request = require "moonreel.sample.request"
local rflow = require "moonreel.diffusion.rflow"

local along = {}

local IMAGE_FPS = 120 -- the frame rate of a still in the reference

-- fields of sampling that only renderings of Open-Sora 2.0 use
local OF_20 = { "cond_type", "flow_shift", "guidance", "guidance_img", "image_osci",
  "is_causal_vae", "method", "motion_score", "neg", "num_steps", "prompt_refine",
  "scale_temporal_osci", "seed", "shift", "temporal_reduction", "text_osci", "use_t2i2v" }

-- latent frames that a loop takes from the piece before, by default
local CONDITION_FRAMES = 5

-- ---- request ----

-- the words of a prompt with its scores for the text encoder, and its JSON
local function words_of(text, how, cleans)
  if cleans then
    return prompt.prepare(text, how)
  end
  local words, fields = prompt.extract(text)
  local texts, loops = prompt.split(words)
  for i, one in ipairs(texts) do
    texts[i] = prompt.score(one, how)
  end
  return prompt.merge(texts, loops), fields
end

--- Sides of frames are multiples of this number of pixels; nil: of any.
---@return integer|nil
function along.cell() return nil end

--- Seeds of the renderings of all prompts, one after another.
---@param o table       seeds, prompts
---@param s table       settings
---@param many integer  renderings of each prompt and seed
---@return integer[][]  of each prompt
function along.seeds(o, s, many)
  local list, all = {}, {}
  for _, seed in ipairs(o.seeds or s:plain "sampling.seeds") do
    for k = 0, many - 1 do
      list[#list + 1] = seed + k
    end
  end
  for i in ipairs(o.prompts) do
    all[i] = list
  end
  return all
end

--- Lists of the request that it does not use, and what to try.
along.not_taken = { negatives = "leave it out, or use a model of Open-Sora 2.0" }

--- Reads its options, apart from sizes and rates.
---@param o table     options for sampler:render
---@param s table     settings: sampling, scheduler
---@return table      steps, guidance, condition_length (latent frames), condition_edit, align
function along.read(o, s)
  return { steps = o.steps or s.scheduler.num_sampling_steps,
    guidance = o.guidance or s.scheduler.cfg_scale,
    condition_length = s.sampling.condition_frame_length or CONDITION_FRAMES,
    condition_edit = s.sampling.condition_frame_edit or 0, align = s.sampling.align }
end

--- Words, paths and strategy of a prompt.
---@param row table   prompt; reference, strategy: texts from the options, or nil
---@param _ table
---@param s table     settings
---@param pipe table  cleans: captions are cleaned before they are encoded
---@return table      words, paths, strategy
function along.item(row, _, s, pipe)
  local scores = { aes = s.sampling.aes, flow = s.sampling.flow,
    camera_motion = s.sampling.camera_motion }
  local words, fields = words_of(row.prompt, scores, pipe.cleans)
  return { words = words, paths = prompt.references(fields.reference_path or row.reference),
    strategy = fields.mask_strategy or row.strategy }
end

--- Refuses requests that cannot be rendered.
---@param self mr.Sampler
---@param r table  the request
function along.check(self, r)
  local s, auto = self.settings, self.pipe.autoencoder
  request.refuse(self.defaults, OF_20, "leave it out, or use a model of Open-Sora 2.0")
  -- times that are all 0: the settings of a checkpoint may not have been checked for this
  local why = lengths.lost({ compat = s.compat, shift = s.scheduler.shift,
    use_timestep_transform = s.scheduler.use_timestep_transform }, r.frames)
  if why then
    base.raise("MR_E_USAGE", "sample: " .. why)
  end
  if r.loop > 1 then
    auto:head(r.condition_length)
    local latent = auto:latent(r.frames, r.height, r.width)[2]
    if latent < r.condition_length then
      base.raise("MR_E_USAGE", ("sampling.condition_frame_length is %d, but a piece of %d frames "
        .. "has %d latent frames; try: more --num-frames"):format(r.condition_length, r.frames,
        latent))
    end
  end
end

-- ---- rendering ----

--- The values on which the program of a step depends, apart from its sizes.
---@param r table               the request
---@param masked boolean|nil    there is a frame mask
---@return table                guidance, masked; key: all of these
function along.way(r, masked)
  return { guidance = r.guidance, masked = masked or false,
    key = ("g%.17g%s"):format(r.guidance, masked and " mask" or "") }
end

local function copies_of(way) return way.guidance == 1 and 1 or 2 end

--- Adds the nodes of a step.
---@param self mr.Sampler
---@param g mr.Graph
---@param shape table  dims of the latents; height, width; way
function along.nodes(self, g, shape)
  local pipe, way = self.pipe, shape.way
  local B, copies = shape.dims[1], copies_of(way)
  local text, fps = pipe:inputs(g, B, copies), g:input("fps", "f32", { copies * B })
  local len = g:input("len", "i32", { copies * B })
  rflow.step(g, { dims = shape.dims, guidance = way.guidance, masked = way.masked,
    predict = function(x, t, x_mask)
      return pipe:predict_guided(g, { x = x, t = t, x_mask = x_mask, fps = fps, text = text,
        text_len = len, copies = copies, height = shape.height, width = shape.width,
        sequence = self.sequence })
    end })
end

--- The conditions of a rendering.
---@param self mr.Sampler
---@param item table  of the request
---@param r table     the request
---@return table      kept(loop): number of frames at the end of a piece that the next one needs
function along.conditions(self, item, r)
  return conditions.new(self.codec, item, r, self.settings.compat ~= nil)
end

--- Frames at both ends of a piece that are not shown.
---@param self mr.Sampler
---@param r table       the request
---@param loop integer  from 0
---@return integer first, integer last
function along.hidden(self, r, loop)
  return loop > 0 and self.pipe.autoencoder:head(r.condition_length) or 0, 0
end

-- sets the inputs of a step's program that are the same for all steps
local function set_text(self, p, r, items, loop)
  local B, copies, prompts = r.batch, copies_of(p.way), {}
  for b = 1, B do
    prompts[b] = prompt.at(items[math.min(b, #items)].words, loop)
  end
  local tokens = self.pipe:guided_tokens(prompts, copies)
  local len, fps = tokens.len:totable(), {}
  for b = 1, self.pipe.null_encoded and 0 or (copies - 1) * B do
    -- the null caption has all its tokens; the reference cuts it to the length of the prompt
    len[B + b] = self.settings.compat and len[b] or self.pipe.text.max_length
  end
  for b = 1, copies * B do
    fps[b] = r.frames == 1 and IMAGE_FPS or r.fps
  end
  self.pipe:set(p.step, tokens)
  p.step:set("len", T.from({ copies * B }, len, "i32"))
  p.step:set("fps", T.from({ copies * B }, fps))
end

-- writes the given frames into the noise; returns the masks of all renderings, nil without given
-- frames
local function masks_of(z, r, items, loop, before)
  local size, masks, masked = { table.unpack(z.shape, 2) }, {}, false
  for b, item in ipairs(items) do
    masks[b] = item.conditions:apply(z:slice(0, b - 1, b):reshape(size), loop, before[b])
    masked = masked or masks[b] ~= nil
  end
  local all = {}
  for i = 1, size[2] do
    all[i] = 1
  end
  for b = 1, masked and r.batch or 0 do
    masks[b] = masks[b] or all
  end
  return masked and masks or nil
end

--- Latents of a loop over at most B items; empty places repeat the last one.
---@param self mr.Sampler
---@param r table         the request
---@param items table[]   with conditions
---@param loop integer    from 0
---@param before table    the kept end of the previous piece, by item
---@return mr.Tensor      f32 [B, C, t, h, w]
function along.latents(self, r, items, loop, before)
  local z = self:noise(r, items, "sample_noise", 0, loop)
  local masks, times = masks_of(z, r, items, loop, before), {}
  local p = self:program(r, along.way(r, masks ~= nil))
  set_text(self, p, r, items, loop)
  -- one list for all renderings, because they have the same size
  for i, t in ipairs(rflow.times(self.settings, self.pipe, self:size(r), r)) do
    times[i] = {}
    for b = 1, r.batch do
      times[i][b] = t
    end
  end
  return rflow.run(p.step, { z = z, times = times, mask = masks, watch = self:watch(r, items),
    noise = function(step) return self:noise(r, items, "edit_noise", step, loop) end })
end

return along
