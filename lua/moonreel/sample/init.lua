--- Rendering from a checkpoint alone: prompts to frames to files.
-- The settings a run was trained with travel inside its checkpoints; nothing else is read.
-- @module moonreel.sample
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local data = require "moonreel.data"
local names = require "moonreel.sample.names"
local options = require "moonreel.text.options"
local pipeline = require "moonreel.models.pipeline"
local rflow = require "moonreel.diffusion.rflow"
local start = require "moonreel.ckpt.start"
local state = require "moonreel.trainer.state"

local sample = {}

local IMAGE_FPS = 120   -- what the reference tells the model about a still

local Sampler = {}
Sampler.__index = Sampler

-- the weights of a file, or their averages; a folder of the reference keeps these in ema.pt
local function fill(self, source, ema)
  local settings, averages <close> = self.settings, ema and ckpt.beside(source, "ema.pt") or nil
  local from = averages or source
  start.check_config(source, self.pipe.maps)
  local report = state.load_weights(self.exec, self.pipe.params, from, {maps = self.pipe.maps,
    average = ema})
  for _, row in ipairs(report.fresh) do
    report.missing[#report.missing + 1] = row.name
  end
  if #report.missing > 0 then
    base.raise("MR_E_CKPT", ("%s: %d tensors are missing, the first is '%s'"):format(from.path,
      #report.missing, report.missing[1]))
  end
  if settings.strict then
    start.refuse(from.path, report)
  end
end

local read_open = options.declare("sample.open", {
  { "ema", "boolean", "the averaged weights; as sampling.ema where absent" },
  { "device", "text", "where to compute; the settings' where absent" },
  { "threads", "integer", "of the device; the settings' where absent" },
  { "outputs", "text", "folder of the runs", default = "outputs" },
  { "settings", "mr.Settings", "a baked recipe in place of the checkpoint's own" },
  { "defaults", "mr.Settings", "a baked recipe whose sampling and scheduler say how to render" },
})

--- Load the models of a checkpoint.
---@param spec string       a checkpoint, a run, RUN@STEP, or weights when `settings` are given
---@param given table|nil    ema, device, threads, outputs, settings, defaults
---@return mr.Sampler       with settings, path, step, notes
function sample.open(spec, given)
  local o = read_open(given)
  local found = ckpt.resolve(spec, o.outputs)
  local source <close>, notes = ckpt.load(found)
  local settings = o.settings
  if not settings then
    if not (source.manifest and source.manifest.settings) then
      base.raise("MR_E_USAGE", ("%s: these are weights without settings; try: moonreel sample "
        .. "RECIPE --ckpt-path %s"):format(
        source.path, source.path))
    end
    settings = require("moonreel.settings").from_json(source.manifest.settings, source.path)
  end
  local self = setmetatable({settings = settings, defaults = o.defaults or settings,
    path = source.path, step = source.step,
    notes = notes, programs = {}}, Sampler)
  self.device = E.device(o.device or settings.device, o.threads or settings.threads)
  self.pipe = pipeline.of(settings, pipeline.dtype(settings, self.device))
  self.exec = E.new(self.device, self.pipe.params, {})
  local ema = o.ema
  if ema == nil then
    ema = self.defaults.sampling.ema
  end
  local good, err = pcall(function()
    fill(self, source, ema)
    self.codec = blame.field(settings, "vae.from_pretrained", codec.new, self.pipe, self.exec,
      self.device)
  end)
  if not good then
    self:close()
    error(err, 0)
  end
  return self
end

function Sampler:close()
  self.programs = {}
  if self.codec then
    self.codec:close()
  end
  self.exec:close()
  self.device:close()
end
Sampler.__close = Sampler.close

-- graph of one Euler step over B renderings
local function build(self, shape)
  local pipe, copies = self.pipe, shape.guidance == 1 and 1 or 2
  local B = shape.batch
  local size = pipe.autoencoder:latent(shape.frames, shape.height, shape.width)
  local dims = {B, size[1], size[2], size[3], size[4]}
  local g = G.graph(pipe.params)
  local text, fps = pipe.text:inputs(g, B), g:input("fps", "f32", {copies * B})
  local len = g:input("len", "i32", {copies * B})
  rflow.sample_step(g, {dims = dims, guidance = shape.guidance, predict = function(x, t)
    return pipe:predict_guided(g, {x = x, t = t, fps = fps, text = text,
      text_len = len, copies = copies,
      height = shape.height, width = shape.width})
  end})
  g:finish()
  return {step = self.exec:compile(g), graph = g, dims = dims, copies = copies}
end

local function programs_of(self, shape)
  local key = ("%dx%dx%d b%d g%.17g"):format(shape.frames, shape.height,
    shape.width, shape.batch, shape.guidance)
  self.programs[key] = self.programs[key] or build(self, shape)
  return self.programs[key]
end

-- times of a run: one list for all renderings, they have one size
local function times_of(self, shape, steps, B)
  local latent = self.pipe.autoencoder:latent(shape.frames, shape.height, shape.width)
  local ratio, round = rflow.ratio_of(self.settings, self.pipe.dtype, {height = shape.height,
    width = shape.width, frames = shape.frames, latent_frames = latent[2]})
  local times = {}
  for i, t in ipairs(rflow.schedule(steps, ratio, round)) do
    times[i] = {}
    for b = 1, B do
      times[i][b] = t
    end
  end
  return times
end

-- render at most B items; empty places repeat the last one
local function render_batch(self, items, shape, how)
  local B, p = shape.batch, programs_of(self, shape)
  local prompts, noise = {}, T.new("f32", p.dims)
  for b = 1, B do
    local item = items[math.min(b, #items)]
    prompts[b] = item.prompt
    -- noise belongs to the seed alone: the same whatever is rendered beside it
    local one = T.new("f32", {p.dims[2], p.dims[3], p.dims[4], p.dims[5]}):fill_normal(item.seed,
      "sample_noise")
    noise:slice(0, b - 1, b):reshape(one.shape):copy_from(one)
  end
  local tokens = self.pipe.text:tokens(prompts)
  local len, fps = tokens.len:totable(), {}
  for b = 1, (p.copies - 1) * B do
    -- the null caption has all its tokens; the reference cuts it to the prompt's
    len[B + b] = self.settings.compat and len[b] or self.pipe.text.max_length
  end
  for b = 1, p.copies * B do
    fps[b] = shape.frames == 1 and IMAGE_FPS or how.fps
  end
  self.pipe.text:set(p.step, tokens)
  p.step:set("len", T.from({p.copies * B}, len, "i32"))
  p.step:set("fps", T.from({p.copies * B}, fps))
  local z = rflow.sample(p.step, {z = noise, times = times_of(self, shape, how.steps, B),
    watch = how.watch})
  local clips = {}
  for b, item in ipairs(items) do
    local pieces, height, width = {}, nil, nil
    local one = z:slice(0, b - 1, b):reshape{table.unpack(p.dims, 2)}
    self.codec:decode(one, shape, function(pictures)
      pieces[#pieces + 1] = codec.pixels(pictures):bytes()
      height, width = pictures.shape[3], pictures.shape[4]
    end)
    clips[b] = {prompt = item.prompt, seed = item.seed, frames = shape.frames,
      height = height, width = width, fps = how.save_fps or how.fps,
      pixels = table.concat(pieces)}
  end
  return clips
end

-- pixels of sampling.resolution at sampling.aspect_ratio, height before width
local function named_size(s)
  local name, aspect = s.sampling.resolution, s.sampling.aspect_ratio or "1:1"
  if not name then
    base.raise("MR_E_USAGE", "sample: no size; try: --size 256x256, or --resolution 240p "
      .. "--aspect-ratio 9:16")
  end
  local resolution = s:plain("resolutions")[name]
  if not resolution then
    base.raise("MR_E_USAGE",
      ("%s: sampling.resolution: no resolution '%s'"):format(s:origin("sampling.resolution"), name))
  end
  local height, width = names.size(resolution, aspect)
  if not height then
    base.raise("MR_E_USAGE",
      ("%s: sampling.aspect_ratio: expected HEIGHT:WIDTH as 9:16, got '%s'"):format(
      s:origin("sampling.aspect_ratio"), aspect))
  end
  return height, width
end

local read_render = options.declare("sampler:render", {
  { "prompts", "table", "texts; required" },
  { "seeds", "table", "integers; sampling.seeds where absent" },
  { "frames", "integer", "sampling.frames where absent" },
  { "height", "integer", "sampling.height, or that of sampling.resolution, where absent" },
  { "width", "integer", "as height" },
  { "fps", "number", "what the model is told; sampling.fps where absent" },
  { "save_fps", "number", "of the file; sampling.save_fps, then fps where absent" },
  { "steps", "integer", "of Euler; scheduler.num_sampling_steps where absent" },
  { "guidance", "number", "scheduler.cfg_scale where absent; 1: none" },
  { "batch_size", "integer", "renderings at once; sampling.batch_size where absent" },
  { "watch", "function", "called with the number of each Euler step" },
})

--- Render every prompt with every seed.
---@param given table  prompts; the rest defaults to the settings: seeds, frames, height, width,
---   fps, save_fps, steps, guidance, batch_size; watch
---@return table  clips, prompts slowest: {prompt, seed, frames, height, width, fps, pixels = u8
---   [T][3][H][W]}
function Sampler:render(given)
  local s, o = self.defaults, read_render(given)
  local function pick(name, fallback)
    if o[name] ~= nil then
      return o[name]
    end
    return fallback
  end
  local height, width = pick("height", s.sampling.height), pick("width", s.sampling.width)
  if not (height and width) then
    height, width = named_size(s)
  end
  local how = {fps = pick("fps", s.sampling.fps),
    save_fps = pick("save_fps", s.sampling.save_fps),
    steps = pick("steps", s.scheduler.num_sampling_steps), watch = o.watch}
  local shape = {frames = pick("frames", s.sampling.frames), height = height, width = width,
    guidance = pick("guidance", s.scheduler.cfg_scale)}
  local items, clips = {}, {}
  for _, prompt in ipairs(o.prompts or {}) do
    for _, seed in ipairs(pick("seeds", s:plain("sampling.seeds"))) do
      items[#items + 1] = {prompt = prompt, seed = seed}
    end
  end
  shape.batch = math.min(pick("batch_size", s.sampling.batch_size), math.max(#items, 1))
  for first = 1, #items, shape.batch do
    local part = table.move(items, first, math.min(first + shape.batch - 1, #items), 1, {})
    table.move(render_batch(self, part, shape, how), 1, #part, #clips + 1, clips)
  end
  return clips
end

--- Write a clip: one frame as PNG, more as MP4.
---@param clip table   of Sampler:render
---@param stem string  path without extension
---@return string path
function sample.write(clip, stem)
  if clip.frames == 1 then
    data.png(stem .. ".png", clip.pixels, {height = clip.height, width = clip.width})
    return stem .. ".png"
  end
  data.encode(stem .. ".mp4", clip.pixels,
    {frames = clip.frames, height = clip.height, width = clip.width, fps = clip.fps})
  return stem .. ".mp4"
end

return sample
