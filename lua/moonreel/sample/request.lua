--- What is asked of a rendering: options over the settings' own, as sizes, rates and items.
-- @module moonreel.sample.request
local base = require "moonreel.core.base"
local names = require "moonreel.sample.names"
local options = require "moonreel.text.options"
local prompt = require "moonreel.caption.prompt"

local request = {}

-- the most frames a second that a file of a clip takes
local FASTEST = 1000

-- latent frames that a loop takes over where nothing else is asked for
local CONDITION_FRAMES = 5

-- pixels of sampling.resolution at sampling.aspect_ratio, height before width
local function named_size(s)
  local name, aspect = s.sampling.resolution, s.sampling.aspect_ratio or "1:1"
  if not name then
    base.raise("MR_E_USAGE", "sample: no size; try: --size 256x256, or --resolution 240p "
      .. "--aspect-ratio 9:16")
  end
  local known = s:plain("resolutions")
  local resolution, all = known[name], {}
  if not resolution then
    for other in pairs(known) do
      all[#all + 1] = other
    end
    table.sort(all)
    base.raise("MR_E_USAGE", ("%s: sampling.resolution: no resolution '%s'; known: %s"):format(
      s:origin("sampling.resolution"), name, table.concat(all, ", ")))
  end
  local height, width = names.size(resolution, aspect)
  if not height then
    base.raise("MR_E_USAGE",
      ("%s: sampling.aspect_ratio: expected HEIGHT:WIDTH as 9:16, got '%s'"):format(
      s:origin("sampling.aspect_ratio"), aspect))
  end
  return height, width
end

local read = options.declare("sampler:render", {
  { "prompts", "table", "texts; required" },
  { "seeds", "table", "integers; sampling.seeds where absent" },
  { "frames", "integer", "sampling.frames where absent" },
  { "height", "integer", "sampling.height, or that of sampling.resolution, where absent" },
  { "width", "integer", "as height" },
  { "fps", "number", "what the model is told; sampling.fps where absent" },
  { "save_fps", "number", "of the file; sampling.save_fps where absent, else fps over "
    .. "sampling.frame_interval" },
  { "steps", "integer", "of Euler; scheduler.num_sampling_steps where absent" },
  { "guidance", "number", "scheduler.cfg_scale where absent; 1: none" },
  { "batch_size", "integer", "renderings at once; sampling.batch_size where absent" },
  { "loop", "integer", "pieces, each going on from the one before; sampling.loop where absent" },
  { "num_sample", "integer", "renderings of each prompt and seed; sampling.num_sample where "
    .. "absent" },
  { "references", "table", "paths of each prompt, FILE;FILE; sampling.reference_path where "
    .. "absent" },
  { "strategies", "table", "conditions of each prompt; sampling.mask_strategy where absent" },
  { "after", "table", "clips as render returns them, one for each rendering: its last reference, "
    .. "and its first frame where no condition is given" },
  { "sink", "function", "(item, clip): takes a rendering while it is made, see sample.init" },
  { "watch", "function", "called with the number of each Euler step and its program" },
  { "progress", "function", "called before the first Euler step and after each with how many are "
    .. "done, and of how many; before the first also with the seconds that all are expected to "
    .. "take, where they are many operations" },
})

-- a text for each prompt: the last one holds for those behind it
local function of_prompt(list, i) return list and (list[i] or list[#list]) or nil end

-- the words of a prompt with its scores, as the text encoder takes them, and its JSON
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

-- one rendering per prompt, seed and number
local function items_of(r, o, s, cleans)
  local scores = {aes = s.sampling.aes, flow = s.sampling.flow,
    camera_motion = s.sampling.camera_motion}
  local references = o.references or s:plain("sampling.reference_path")
  local strategies = o.strategies or s:plain("sampling.mask_strategy")
  for i, text in ipairs(o.prompts or {}) do
    local words, fields = words_of(text, scores, cleans)
    local paths = prompt.references(fields.reference_path or of_prompt(references, i))
    local number = 0
    for _, seed in ipairs(o.seeds or s:plain("sampling.seeds")) do
      for k = 0, r.num_sample - 1 do
        r.items[#r.items + 1] = {prompt = text, words = words, seed = seed + k, paths = paths,
          strategy = fields.mask_strategy or of_prompt(strategies, i), index = i - 1,
          number = number}
        number = number + 1
      end
    end
  end
end

-- renderings of another pipeline, each the last reference of one here
local function take_after(items, clips)
  if #clips ~= #items then
    base.raise("MR_E_USAGE", ("sample: after = %d clips, but there are %d renderings; expected one "
      .. "for each; try: the same prompts and seeds"):format(#clips, #items))
  end
  for i, item in ipairs(items) do
    item.paths = table.move(item.paths, 1, #item.paths, 1, {})
    item.strategy = item.strategy or ("0,%d"):format(#item.paths)
    table.insert(item.paths, clips[i])
  end
end

--- Read options over settings.
---@param given table        as sampler:render takes it
---@param settings table     baked: sampling, scheduler, resolutions
---@param cleans boolean|nil captions are cleaned before they are encoded
---@return table             frames, height, width, fps, save_fps, steps, guidance, batch, loop,
---   num_sample, condition_length (latent frames), condition_edit, align; items: {prompt, words,
---   seed, paths, strategy, index, number}; sink, watch, progress
function request.read(given, settings, cleans)
  local o, s = read(given), settings
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
  local fps, interval = pick("fps", s.sampling.fps), s.sampling.frame_interval
  local r = {height = height, width = width, frames = pick("frames", s.sampling.frames), fps = fps,
    save_fps = pick("save_fps", s.sampling.save_fps)
      or interval and math.max(1, fps // interval) or fps,
    steps = pick("steps", s.scheduler.num_sampling_steps),
    guidance = pick("guidance", s.scheduler.cfg_scale),
    loop = pick("loop", s.sampling.loop) or 1,
    num_sample = pick("num_sample", s.sampling.num_sample) or 1,
    condition_length = s.sampling.condition_frame_length or CONDITION_FRAMES,
    condition_edit = s.sampling.condition_frame_edit or 0, align = s.sampling.align,
    items = {}, sink = o.sink, watch = o.watch, progress = o.progress}
  if r.frames > 1 and not (r.save_fps > 0 and r.save_fps <= FASTEST) then
    base.raise("MR_E_USAGE", ("sample: a file of %g frames a second; expected above 0, at most %d; "
      .. "try: --save-fps 24"):format(r.save_fps, FASTEST))
  end
  items_of(r, o, s, cleans)
  if o.after then
    take_after(r.items, o.after)
  end
  r.batch = math.min(pick("batch_size", s.sampling.batch_size), math.max(#r.items, 1))
  return r
end

return request
