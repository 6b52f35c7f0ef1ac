--- Renders prompts from a checkpoint alone: prompts to frames to files.
-- A checkpoint contains the settings of its run; rendering reads no other file.
-- @module moonreel.sample
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local embed = require "moonreel.embed"
local fill_regions = require "moonreel.ckpt.fill"
local fit = require "moonreel.sample.fit"
local lengths = require "moonreel.codec.lengths"
local nonfinite = require "moonreel.sample.nonfinite"
local options = require "moonreel.text.options"
local output = require "moonreel.sample.output"
local place = require "moonreel.comm.place"
local ranks = require "moonreel.sample.ranks"
local team = require "moonreel.comm.team"
local pipeline = require "moonreel.models.pipeline"
local released = require "moonreel.sample.released"
local request = require "moonreel.sample.request"
local start = require "moonreel.ckpt.start"

local sample = {}

local MANY = 1e12       -- operations whose expected time is reported before they begin
local TORCH_LEAST = 16  -- torch.randn draws at least this many numbers in blocks

local Sampler = {}
Sampler.__index = Sampler

-- loads the weights of a file, or their averages; a folder of the reference has averages in ema.pt
local function fill(self, source, ema)
  local settings, averages <close> = self.settings, ema and ckpt.companion(source, "ema.pt") or nil
  local from = averages or source
  blame.compare(settings, "model", start.check_sizes, source, self.pipe.maps)
  local report = fill_regions.weights(self.exec, self.pipe.params, from, {maps = self.pipe.maps,
    average = ema})
  local fresh = report.fresh[1]
  if fresh then
    base.raise("MR_E_CKPT", ("%s: weights of %s for training, without %d tensors that a "
      .. "rendering needs, such as '%s'; try: moonreel train RECIPE --ckpt-path %s, then moonreel "
      .. "sample with its checkpoint"):format(from.path, report.layout, #report.fresh, fresh.name,
      from.path))
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
  { "ema", "boolean", "the averaged weights; absent: sampling.ema" },
  { "device", "text", "where to compute; absent: that of the settings" },
  { "threads", "integer", "threads of the device; absent: those of the settings" },
  { "outputs", "text", "folder of the runs", default = "outputs" },
  { "settings", "mr.Settings", "a baked recipe in place of the checkpoint's settings" },
  { "defaults", "mr.Settings", "a baked recipe whose sampling and scheduler are used" },
  { "overrides", "table", "fields over those of the checkpoint or folder, as settings.bake takes "
    .. "them", default = {} },
  { "run", "text", "the directory of a checkpoint's run or stage, if its path does "
    .. "not contain it" },
  { "team", "mr.Team", "ranks that render together and all make the same calls; absent: one rank" },
})

-- the settings in a checkpoint, or those of the reference for weights with config.json
local function settings_of(source, overrides)
  local settings = require "moonreel.settings"
  local text = source.manifest and source.manifest.settings
  if not text then
    return released.settings(source, overrides)
  end
  local own = settings.from_json(text, source.path)
  return #overrides > 0 and settings.with(own, overrides) or own
end

-- the module that renders along the flow of a pipeline
local function along_of(pipe) return require("moonreel.sample." .. pipe.flow.name) end

-- reads options over the settings of a pipeline
local function read_request(pipe, defaults, given)
  local along = along_of(pipe)
  return request.read(given, defaults, along, {cleans = pipe.text.cleans, cell = along.cell(pipe)})
end

-- the device; only open() needs it
local function device_of(self)
  return E.device(place.device(self.o.device or self.settings.device),
    self.o.threads or self.settings.threads)
end

local Prepared = {}
Prepared.__index = Prepared

-- The checkpoint, run or file that `spec` names. If a recipe's ckpt_path names it, errors begin
-- with the line that sets ckpt_path.
local function found_by(spec, o)
  local recipe, file = o.settings, released.file_of(spec)
  if recipe and recipe.ckpt_path == spec then
    return blame.field(recipe, "ckpt_path", ckpt.resolve, file, o.outputs)
  end
  return ckpt.resolve(file, o.outputs)
end

--- Finds what a rendering would open: reads settings, but no weights.
---@param spec string       a checkpoint, a run, RUN@STEP, a folder of weights with config.json, the
---   folder of Open-Sora 2.0 or its file, or weights if `settings` are given
---@param given table|nil    ema, device, threads, outputs, settings, defaults, overrides, run
---@return mr.Prepared      settings, defaults, path, step, notes; read(options), open(); has to be
---   closed
function sample.prepare(spec, given)
  local o = read_open(given)
  local found = found_by(spec, o)
  found.run = found.run or o.run
  local source, notes = ckpt.load(found)
  local self = setmetatable({o = o, found = found, source = source, notes = notes,
    path = source.path, step = source.step}, Prepared)
  local good, err = pcall(function()
    self.settings = o.settings or settings_of(source, o.overrides)
    self.defaults = o.defaults or self.settings
    if pipeline.reconstructs(self.settings) then
      base.raise("MR_E_USAGE", ("%s is an autoencoder, which cannot render prompts; try: its path "
        .. "as vae.from_pretrained of a recipe"):format(source.path))
    end
  end)
  if not good then
    self:close()
    error(err, 0)
  end
  return self
end

-- the models of settings without their weights
local function pipe_of(settings, dtype, split)
  return blame.record(settings, "model", pipeline.of, settings, dtype, nil, split)
end

-- models that only know sizes, made once
local function plain_of(self)
  self.plain = self.plain or pipe_of(self.settings, "f32")
  return self.plain
end

--- The request for these options; only open models know whether it can be rendered.
---@param given table  options of Sampler:request
---@return table       as in moonreel.sample.request
function Prepared:read(given) return read_request(plain_of(self), self.defaults, given) end

--- Sides of frames are multiples of this number of pixels; nil: of any number.
---@return integer|nil
function Prepared:cell()
  local pipe = plain_of(self)
  return along_of(pipe).cell(pipe)
end

--- Loads the models.
---@return mr.Sampler  with settings, path, step, notes; codec: of its autoencoder
function Prepared:open()
  local settings, o = self.settings, self.o
  local sampler = setmetatable({settings = settings, defaults = self.defaults, path = self.path,
    step = self.step, notes = self.notes, programs = {}, device = device_of(self)}, Sampler)
  local good, err = pcall(function()
    local by = o.team or team.new()
    local pipe = pipe_of(settings, pipeline.dtype(settings, sampler.device),
      ranks.split(self.defaults, by))
    sampler.pipe, sampler.along = pipe, along_of(pipe)
    sampler.sequence = ranks.connect(self.defaults, by, pipe.model,
      sampler.device:facts().device ~= "cpu")
    if settings.vae.from_pretrained == "recipe.previous" then
      pipe.config.vae.from_pretrained = ckpt.before(self.found.run)
    end
    if pipe.autoencoder.apart then
      ranks.clips(self.defaults, by, pipe.autoencoder)
    end
    sampler.exec = E.new(sampler.device, pipe.params, {})
    local ema = o.ema
    if ema == nil then
      ema = self.defaults.sampling.ema
    end
    fill(sampler, self.source, ema)
    sampler.codec = blame.field(settings, "vae.from_pretrained", codec.new, pipe, sampler.exec,
      sampler.device)
    sampler.embedder = embed.open_all(settings, pipe, sampler.device)
  end)
  if not good then
    sampler:close()
    error(err, 0)
  end
  return sampler
end

function Prepared:close() self.source:close() end
Prepared.__close = Prepared.close

--- Loads the models of a checkpoint.
---@param spec string      as in sample.prepare
---@param given table|nil
---@return mr.Sampler      as from Prepared:open
function sample.open(spec, given)
  local prepared <close> = sample.prepare(spec, given)
  return prepared:open()
end

function Sampler:close()
  self.programs = {}
  if self.codec then
    self.codec:close()
  end
  if self.embedder then
    self.embedder:close()
  end
  if self.exec then
    self.exec:close()
  end
  self.device:close()
end
Sampler.__close = Sampler.close

--- Sizes of a rendering.
---@param r table  the request
---@return table   frames, height, width: of pixels; latent: {C, T, H, W}
function Sampler:size(r)
  return {frames = r.frames, height = r.height, width = r.width,
    latent = self.pipe.autoencoder:latent(r.frames, r.height, r.width)}
end

--- The program of one Euler step over B renderings.
---@param r table    the request
---@param way table  the other values on which it depends, with a `key` of them
---@return table     step, dims {B, C, T, H, W}, way
function Sampler:program(r, way)
  local key = ("%dx%dx%d b%d %s"):format(r.frames, r.height, r.width, r.batch, way.key)
  if not self.programs[key] then
    local g = G.graph(self.pipe.params)
    local dims = {r.batch, table.unpack(self:size(r).latent)}
    self.along.nodes(self, g, {dims = dims, height = r.height, width = r.width, way = way})
    g:finish()
    self.programs[key] = {step = self.exec:compile(g), dims = dims, way = way}
  end
  return self.programs[key]
end

--- Noise of B renderings in a loop. It depends on the seed only, not on other renderings of the
-- batch. The reference seeds again before every loop and draws for the whole batch at once, for the
-- start (key 0) and for each step of a conditioned rendering.
---@param r table         the request
---@param items table[]   empty places repeat the last one
---@param purpose string
---@param key integer
---@param loop integer
---@return mr.Tensor      f32 [B, C, T, H, W]
function Sampler:noise(r, items, purpose, key, loop)
  local dims = {r.batch, table.unpack(self:size(r).latent)}
  local all = T.new("f32", dims)
  if self.settings.compat and T.count(dims) >= TORCH_LEAST then
    return all:fill_torch_normal(items[1].seed, key)
  end
  for b = 1, r.batch do
    local one = T.new("f32", {table.unpack(dims, 2)}):fill_normal(
      items[math.min(b, #items)].seed, purpose, key, loop)
    all:slice(0, b - 1, b):reshape(one.shape):copy_from(one)
  end
  return all
end

--- The function that is called after each Euler step of a request.
---@param r table         the request
---@param items table[]   the items of the batch
---@return fun(i: integer, prog: mr.Program, z: mr.Tensor)
function Sampler:watch(r, items)
  return function(i, prog, z)
    nonfinite.refuse(self, z, items, i)
    r.done = r.done + 1
    if r.watch then
      r.watch(i, prog)
    end
    if r.progress then
      r.progress(r.done, r.total)
    end
  end
end

-- passes the frames of a piece to a clip, from frame `skip` on and before frame `stop`, and keeps
-- its last `kept`
local function show(self, r, z, clip, skip, stop, kept)
  local last, filled
  self.codec:decode(z, r, function(pictures, first)
    local pixels <close> = codec.pixels(pictures)
    local n, H, W = pixels.shape[1], pixels.shape[3], pixels.shape[4]
    local to = math.min(n, stop - first)
    if first + to > skip and to > 0 then
      local shown <close> = pixels:slice(0, math.max(skip - first, 0), to):clone()
      clip:write(shown)
    end
    local from = math.max(r.frames - kept, first)
    if from < first + n then
      last = last or T.new("u8", {kept, 3, H, W})
      filled = from - (r.frames - kept)
      last:slice(0, filled, filled + first + n - from):copy_from(pixels:slice(0, from - first, n))
    end
  end)
  return last
end

-- unfinished output is removed, also when a rendering ends early
local sinks = {__close = function(list)
  for _, one in ipairs(list) do
    if one.close then
      one:close()
    end
  end
end}

-- renders all loops of at most B items
local function render_batch(self, r, items)
  local before, clips, along = {}, {}, self.along
  local open <close> = setmetatable({}, sinks)
  for b, item in ipairs(items) do
    item.conditions = along.conditions(self, item, r)
    open[b] = r.sink and r.sink(item, r) or output.collect(item, r)
  end
  for loop = 0, r.loop - 1 do
    local z = along.latents(self, r, items, loop, before)
    local skip, hidden = along.hidden(self, r, loop)
    for b, item in ipairs(items) do
      before[b] = show(self, r, z:slice(0, b - 1, b):reshape{table.unpack(z.shape, 2)}, open[b],
        skip, r.frames - hidden, item.conditions:kept(loop))
    end
    -- the garbage collector sees only the handles of tensors, not their memory
    collectgarbage()
  end
  for b, one in ipairs(open) do
    items[b].conditions, clips[b] = nil, one:finish()
  end
  return clips
end

-- a length that the autoencoder takes
local function check_frames(self, r, given)
  local problem = lengths.problem(self.pipe.autoencoder, r.frames)
  if problem and given then
    base.raise("MR_E_USAGE", "sample: " .. problem)
  elseif problem then
    blame.raise(self.defaults, "sampling.frames", "MR_E_RECIPE", "%s", problem)
  end
end

-- refuses sizes without a latent, and sizes that do not fit into memory
local function check_size(self, r)
  local auto = self.pipe.autoencoder
  local size = auto:latent(r.frames, r.height, r.width)
  if size[3] < 1 or size[4] < 1 then
    base.raise("MR_E_USAGE", ("sample: frames of %d x %d are smaller than a cell of the "
      .. "autoencoder; try: --size 144x256"):format(r.height, r.width))
  end
  local bytes = fit.bytes(auto, self.codec, r, function(small)
    return self:program(small, self.along.way(small)).step
  end)
  fit.check(r, bytes, (self.device:memory()))
end

-- Seconds that all steps are expected to take. With few operations the rates are not probed.
local function expected_s(self, r)
  local prog = self:program(r, self.along.way(r)).step
  return prog:cost().flop * r.total > MANY and prog:plan().seconds * r.total or nil
end

--- Reads options over the settings, and refuses errors here rather than after the first piece.
---@param given table  prompts; the rest defaults to the settings, help(sampler.render) lists it
---@return table       the request, as in moonreel.sample.request
function Sampler:request(given)
  local r = read_request(self.pipe, self.defaults, given)
  self.along.check(self, r)
  check_frames(self, r, given.frames)
  check_size(self, r)
  return r
end

-- Numbers of the items that are rendered together, at most r.batch. Under compat only items with
-- the same seed and number, because their noise is drawn at once.
local function batches(self, r)
  local list, open = {}, {}
  for i, item in ipairs(r.items) do
    local key = self.settings.compat and item.seed .. ":" .. item.number or 0
    if not open[key] or #open[key] == r.batch then
      open[key] = {}
      list[#list + 1] = open[key]
    end
    table.insert(open[key], i)
  end
  return list
end

--- Renders every prompt with every seed.
---@param given table  options of Sampler:request, or its result. sink(item, request) may return an
---   object whose write(pixels u8 [n, 3, H, W]) takes frames in order, and whose finish() gives the
---   result of render for it: memory is then that of one piece. Its close(), if it has one, is
---   called at the end, even if a rendering fails
---@return table  clips, prompts slowest: {prompt, seed, index, number, frames, height, width, fps,
---   pixels = u8 [T][3][H][W]}
function Sampler:render(given)
  local r, clips = given.items and given or self:request(given), {}
  local all = batches(self, r)
  r.done, r.total = 0, #all * r.loop * r.steps
  if r.progress then
    r.progress(0, r.total, expected_s(self, r))
  end
  for _, places in ipairs(all) do
    local items = {}
    for k, i in ipairs(places) do
      items[k] = r.items[i]
    end
    for k, clip in ipairs(render_batch(self, r, items)) do
      clips[places[k]] = clip
    end
  end
  return clips
end

--- Refuses, before training, everything that no checkpoint of a recipe could render: prompts,
-- sizes, fields.
---@param settings table     baked
---@param pipe mr.Pipeline   its models
---@return table             the request for its own prompts, as in moonreel.sample.request
function sample.rehearse(settings, pipe)
  local self = {settings = settings, defaults = settings, pipe = pipe}
  local found = require("moonreel.sample.prompts").read(nil, settings)
  local r = read_request(pipe, settings, require("moonreel.sample.prompts").options(found.rows))
  along_of(pipe).check(self, r)
  check_frames(self, r)
  return r
end

--- The programs for rendering a recipe's own prompts, compiled without weights.
---@param settings table     baked
---@param pipe mr.Pipeline   its models
---@param exec mr.Exec       from E.plan
---@return table step        prog: mr.Program of an Euler step; runs: number of its runs
---@return table request
function sample.programs(settings, pipe, exec)
  local r = sample.rehearse(settings, pipe)
  local self = setmetatable({settings = settings, defaults = settings, pipe = pipe, exec = exec,
    along = along_of(pipe), programs = {}}, Sampler)
  return {prog = self:program(r, self.along.way(r)).step, runs = #batches(self, r) * r.loop
    * r.steps}, r
end

--- A sampler of models without weights, for measuring the cost of a rendering, which does not
-- depend on weights.
---@param settings table     baked
---@param pipe mr.Pipeline   its models, none of them separate
---@param exec mr.Exec
---@param device mr.Device   the device of exec; both stay open
---@return mr.Sampler
function sample.bare(settings, pipe, exec, device)
  return setmetatable({settings = settings, defaults = settings, path = "no checkpoint",
    pipe = pipe, along = along_of(pipe), programs = {}, exec = exec, device = device,
    codec = codec.new(pipe, exec, device)}, Sampler)
end

--- Writes a clip: one frame as PNG, several as MP4.
---@param clip table   from Sampler:render
---@param stem string  path without extension
---@return string path
function sample.write(clip, stem)
  local n = 3 * clip.height * clip.width
  local writer = output.file(stem, clip, clip.fps)
  for at = 1, #clip.pixels, n do
    writer:write(T.from({1, 3, clip.height, clip.width}, clip.pixels:sub(at, at + n - 1), "u8"))
  end
  return writer:finish().path
end

return sample
