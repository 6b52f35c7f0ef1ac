--- Reference files about whole renderings of Open-Sora 2.0: what encoders say of a prompt, latents
-- after every step, pictures. Models and their paths stand in config.json beside a file; our own
-- sampler renders, with the noise of the file.
-- @module spec.golden.runner.pipes
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local kinds = require "moonreel.recipe.kinds"
local mmdit = require "spec.golden.runner.mmdit"
local sample = require "moonreel.sample"
local settings = require "moonreel.settings"

local STATES, VALUES, SHARE = 1e-5, 1e-4, 1e-3

local RECIPE = "opensora-2.0/inference/256px"

-- ---- the models

local function config_of(folder) return json.decode(base.read_file(folder .. "/config.json")) end

-- where the models of a picture lie: as flat files of Flux, as a folder of diffusers
local FLAT = { model = "/flux.safetensors", t5 = "/t5", clip = "/openai-clip" }
local DIFFUSERS = { model = "/pipeline/transformer", vae = "/pipeline/vae",
  t5 = "/pipeline/text_encoder_2", clip = "/pipeline/text_encoder" }

-- the settings of a model and an autoencoder, with the encoders of a folder
local function bake(model, auto, folder, encoders, more, form)
  form = form or FLAT
  local fields = { from_pretrained = folder .. (form.vae or "/" .. auto.from_pretrained) }
  for name, value in pairs(auto) do
    fields[name] = fields[name] or value
  end
  local list = { "compat=none", "dtype=fp32", "sampling.temporal_reduction=none",
    "sampling.is_causal_vae=none", "text_encoder.from_pretrained=" .. encoders .. form.t5,
    "clip.from_pretrained=" .. encoders .. form.clip,
    "vae=recipe.replace" .. kinds.show(fields) }
  for name, value in pairs(model) do
    list[#list + 1] = ("model.%s=%s"):format(name, type(value) == "table" and kinds.show(value)
      or tostring(value))
  end
  return settings.bake(RECIPE, table.move(more or {}, 1, #(more or {}), #list + 1, list))
end

local function open(path, baked) return sample.open(path, { settings = baked, ema = false }) end

-- what is drawn is what a file has
local function recorded(sampler, noise, draws)
  function sampler.noise() return noise:clone() end
  function sampler.codec.noise(codec, ...)
    local list = getmetatable(codec).__index.noise(codec, ...)
    for name, t in pairs(list or {}) do
      list[name] = draws:reshape(t.shape)
    end
    return list
  end
end

-- ---- comparing

-- what encoders say of a prompt
local function compare_text(f, result, sampler, words, t5, clip, tolerance)
  local tokens = sampler.pipe:tokens { words }
  local want = f:tensor(t5)
  result:scaled(t5, tokens.y:reshape(want.shape), want, tolerance)
  want = f:tensor(clip)
  result:scaled(clip, tokens.vector:reshape(want.shape), want, tolerance)
end

-- bytes that are off by more than one, or too many by one
local function compare_bytes(result, name, got, want)
  local n, off = 0, 0
  for i, value in ipairs(want) do
    local d = math.abs(value - got:byte(i))
    n, off = n + (d > 0 and 1 or 0), math.max(off, d)
  end
  result:exact(name, #got == #want and math.max(off, 1) - 1 or math.huge)
  result:add(name .. ", share off", n / #want, SHARE + 5 / #want)
end

-- frames [T][3][H][W] of a clip as [3][T][H][W]
local function by_channel(clip)
  local cells, list = clip.height * clip.width, {}
  for c = 0, 2 do
    for t = 0, clip.frames - 1 do
      local at = (t * 3 + c) * cells
      list[#list + 1] = clip.pixels:sub(at + 1, at + cells)
    end
  end
  return table.concat(list)
end

-- the rendering of a request; compares latents after each step with rows `from` and after
local function render(f, result, sampler, r, tokens, from)
  local want, p = f:tensor(tokens), sampler.pipe.model.config.patch_size
  r.watch = function(i, prog)
    local row = want:slice(0, i - 1 + from, i + from):clone()
    result:scaled(("%s %d"):format(tokens, i), mmdit.as_tokens(prog:get "z", p):reshape(row.shape),
      row, VALUES)
  end
  return sampler:render(r)[1]
end

-- latents, and the frames `shown` that they decode to
local function compare_decoded(f, result, sampler, latent, decoded, size, shown)
  local z, want = f:tensor(latent), f:tensor(decoded)
  local frames = want.shape[1] * (#want.shape == 5 and want.shape[3] or 1)
  local cells = want:reshape { 3, frames, size.height, size.width }:permute { 1, 0, 2, 3 }:clone()
  sampler.codec:decode(z:reshape(sampler:size(size).latent), size, function(pictures, first)
    for k, at in ipairs(shown) do
      if at >= first and at < first + pictures.shape[1] then
        result:scaled(decoded, pictures:slice(0, at - first, at - first + 1):clone(),
          cells:slice(0, k - 1, k):clone(), VALUES)
      end
    end
  end)
end

-- ---- a picture

-- the renderings of one form of the models
local function pictures(f, result, c, form)
  local folder = f.path:match "^(.*)/"
  local sampler <close> = open(folder .. form.model, bake(c.model, c.ae_model, folder, folder, nil,
    form))
  compare_text(f, result, sampler, c.prompt, "out.t5", "out.clip_pooled", STATES)
  local size = { frames = 1, height = c.height, width = c.width }
  recorded(sampler, f:tensor "in.latent":reshape { 1, table.unpack(sampler:size(size).latent) })
  for _, name in ipairs { "opensora", "flux" } do
    local r = sampler:request { prompts = { c.prompt }, seeds = { 1 }, method = "distill",
      plain = true, guidance = c.guidance, steps = c.num_steps, frames = 1, height = c.height,
      width = c.width }
    local sigmas = f:list(name .. ".sigmas")
    if name == "flux" then
      -- its schedule moves times by a factor of its own
      local even = 1 - 1 / c.num_steps
      r.flow_shift = sigmas[2] * (1 - even) / (even * (1 - sigmas[2]))
    end
    local times = sampler.pipe.flow.times(sampler.settings, sampler.pipe, sampler:size(r), r)
    for i, t in ipairs(times) do
      result:add(name .. ".sigmas", math.abs(t / 1000 - sigmas[i]), 1e-6)
    end
    local clip = render(f, result, sampler, r, name .. ".tokens", 0)
    compare_decoded(f, result, sampler, name .. ".latent", name .. ".decoded", size, { 0 })
    compare_bytes(result, name .. ".picture_u8", clip.pixels, f:list(name .. ".picture_u8"))
  end
end

local function picture(f, result)
  local folder = f.path:match "^(.*)/"
  local c = config_of(folder)
  pictures(f, result, c, FLAT)
  if base.exists(folder .. DIFFUSERS.model) then
    pictures(f, result, c, DIFFUSERS)
  end
end

-- ---- a picture, then a clip that goes on from it

local function first_picture(f, result, c, from)
  local o, ae = c.options, config_of(from).ae_model
  local sampler <close> = open(from .. "/flux.safetensors", bake(c.image_model, ae, from, from))
  compare_text(f, result, sampler, o.prompt, "text.image.t5", "text.image.clip", VALUES)
  recorded(sampler, f:tensor "in.image_noise")
  local size = { frames = 1, height = o.image_size[1], width = o.image_size[2] }
  local clip = render(f, result, sampler, sampler:request { prompts = { o.prompt }, seeds = { 1 },
    method = "distill", plain = true, guidance = 4, steps = o.num_steps, frames = 1,
    height = size.height, width = size.width }, "image.tokens", 1)
  compare_decoded(f, result, sampler, "image.latent", "image.decoded", size, { 0 })
  compare_bytes(result, "image.png_u8", clip.pixels, f:list "image.png_u8")
end

local function clip_after(f, result, c, folder, from)
  local o = c.options
  local sampler <close> = open(folder .. "/video.safetensors", bake(c.model, c.ae_model, folder,
    from, { ("sampling.guidance_img=%g"):format(o.guidance_img), "cond_type=i2v_head",
      ("sampling.text_osci=%s"):format(o.text_osci),
      ("sampling.image_osci=%s"):format(o.image_osci),
      ("sampling.scale_temporal_osci=%s"):format(o.scale_temporal_osci) }))
  compare_text(f, result, sampler, c.video_prompt, "text.video.t5", "text.video.clip", VALUES)
  compare_text(f, result, sampler, c.negative_prompt, "text.negative.t5", "text.negative.clip",
    VALUES)
  recorded(sampler, f:tensor "in.video_noise", f:tensor "in.reference_noise")
  local size = { frames = o.num_frames, height = o.video_size[1], width = o.video_size[2] }
  local png = f:tensor "image.png_u8"
  local r = sampler:request { prompts = { o.prompt }, seeds = { 1 }, guidance = o.guidance,
    steps = o.num_steps, frames = o.num_frames, height = size.height, width = size.width,
    after = { { frames = 1, height = png.shape[2], width = png.shape[3], pixels = png:bytes() } } }
  result:exact("video_prompt", r.items[1].words == c.video_prompt and 0 or 1)
  local clip = render(f, result, sampler, r, "video.tokens", 1)
  compare_decoded(f, result, sampler, "video.latent_final", "video.decoded_first_last", size,
    { 0, o.num_frames - 1 })
  compare_bytes(result, "video.u8", by_channel(clip), f:list "video.u8")
end

local function picture_and_clip(f, result)
  local folder = f.path:match "^(.*)/"
  local c = config_of(folder)
  local from = folder .. "/" .. c["image model, ae, t5, clip"]
  first_picture(f, result, c, from)
  clip_after(f, result, c, folder, from)
end

local function rendering(f, result)
  if f.has["video.tokens"] then
    picture_and_clip(f, result)
  else
    picture(f, result)
  end
end

return { { "^out$", rendering } }
