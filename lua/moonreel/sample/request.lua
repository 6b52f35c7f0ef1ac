--- The request for a rendering: sizes, rates and items, from options and the settings that these
-- override.
-- @module moonreel.sample.request
local aspects = require "moonreel.data.aspects"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local environment = require "moonreel.recipe.environment"
local kinds = require "moonreel.recipe.kinds"
local names = require "moonreel.sample.names"
local options = require "moonreel.text.options"

local request = {}

-- the highest frame rate of a clip's file
local FASTEST = 1000

-- sides of a resolution of 2.0 are multiples of this, unless a model needs another number
local CELL = 16

-- the size of a resolution of Open-Sora 2.0, whose aspects are width to height; nil if it is not
-- such a resolution
local function computed_size(s, name, aspect, cell)
  local known = aspects.resolution(name, cell)
  if not known then
    return nil
  end
  local all = {}
  for _, row in ipairs(aspects.sizes(known.pixels, cell or CELL, false)) do
    if row.name == aspect then
      return row.height, row.width
    end
    all[#all + 1] = row.name
  end
  blame.raise(s, "sampling.aspect_ratio", "MR_E_USAGE", "sampling.aspect_ratio: %s has no %s; "
    .. "expected WIDTH:HEIGHT, one of %s", name, aspect, table.concat(all, ", "))
end

-- pixels of sampling.resolution at sampling.aspect_ratio, which is height to width, except for
-- names of 2.0
local function named_size(s, cell)
  local name, aspect = s.sampling.resolution, s.sampling.aspect_ratio or "1:1"
  if not name then
    base.raise("MR_E_USAGE", "sample: no size is set; try: --size 256x256, or --resolution 240p "
      .. "--aspect-ratio 9:16")
  end
  local known = s:plain("resolutions")
  local resolution = s.compat ~= "opensora-2.0" and known[name] or nil
  if not resolution then
    local height, width = computed_size(s, name, aspect, cell)
    if height then
      return height, width
    end
    base.raise("MR_E_USAGE", ("%s: sampling.resolution: there is no resolution '%s'; expected "
      .. "one of %s, or names as 256px"):format(s:origin("sampling.resolution"), name,
      table.concat(environment.sorted_keys(known), ", ")))
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
  { "seeds", "table", "integers; absent: sampling.seeds" },
  { "frames", "integer", "absent: sampling.frames" },
  { "height", "integer", "absent: sampling.height, or that of sampling.resolution" },
  { "width", "integer", "as height" },
  { "fps", "number", "frames/s for the model; absent: sampling.fps" },
  { "save_fps", "number", "of the file; absent: sampling.save_fps, else fps divided by "
    .. "sampling.frame_interval" },
  { "steps", "integer", "of Euler; absent: scheduler.num_sampling_steps, of 2.0 "
    .. "sampling.num_steps" },
  { "guidance", "number", "absent: scheduler.cfg_scale, of 2.0 sampling.guidance; 1: no guidance" },
  { "method", "text", "of 2.0: how guidance is applied; absent: sampling.method" },
  { "cond_type", "text", "of 2.0: the visual condition; absent: sampling.cond_type" },
  { "plain", "boolean", "of 2.0: do not append rate and motion to the texts" },
  { "batch_size", "integer", "renderings at once; absent: sampling.batch_size, batch_size or 1" },
  { "loop", "integer", "pieces, each continuing the one before; absent: sampling.loop" },
  { "num_sample", "integer", "renderings of each prompt and seed; absent: "
    .. "sampling.num_sample" },
  { "references", "table", "paths of each prompt, FILE;FILE; absent: "
    .. "sampling.reference_path" },
  { "strategies", "table", "conditions of each prompt; absent: sampling.mask_strategy" },
  { "negatives", "table", "of 2.0: negative prompt of each prompt; absent: sampling.neg" },
  { "after", "table", "clips from render, one for each rendering: its last reference, "
    .. "and its first frame if there is no condition" },
  { "sink", "function", "(item, clip): receives a rendering while it is made, see sample.init" },
  { "watch", "function", "called with the number of each Euler step and its program" },
  { "progress", "function", "called before the first Euler step and after each with the number "
    .. "of steps done and in all; before the first, if there are many operations, also with the "
    .. "expected seconds" },
})

-- a text for each prompt: the last one is used for later prompts, too
local function of_prompt(list, i) return list and (list[i] or list[#list]) or nil end

-- Refuses texts without a prompt. Those of the command line belong to its prompts, those of a
-- recipe to the recipe's.
local function check_lists(o, s, along)
  for name, field in pairs { references = "reference_path", strategies = "mask_strategy",
      negatives = "neg" } do
    local chain, instead = s:chain("sampling." .. field), along.not_taken[name]
    local last = chain[#chain]
    local list = o[name] or last and last.command_line and s:plain("sampling." .. field)
    if o[name] and instead then
      base.raise("MR_E_USAGE", ("sample: %s: model.type = %s does not use it; try: "
        .. "%s"):format(field, s.model.type, instead))
    elseif list and #list > #o.prompts then
      base.raise("MR_E_USAGE", ("sample: %d texts of %s for %d prompt%s; expected at most one "
        .. "for each; the last one is used for all later prompts"):format(#list, field, #o.prompts,
        #o.prompts == 1 and "" or "s"))
    end
  end
end

-- one rendering per prompt, seed and number
local function items_of(r, o, s, along, pipe)
  check_lists(o, s, along)
  local references = o.references or s:plain("sampling.reference_path")
  local strategies = o.strategies or s:plain("sampling.mask_strategy")
  local negatives = o.negatives or s:plain("sampling.neg")
  local seeds = along.seeds(o, s, r.num_sample)
  for i, text in ipairs(o.prompts) do
    local item = along.item({ prompt = text, reference = of_prompt(references, i),
      strategy = of_prompt(strategies, i), negative = of_prompt(negatives, i) }, r, s, pipe)
    for k, seed in ipairs(seeds[i]) do
      r.items[#r.items + 1] = {prompt = text, words = item.words, seed = seed, paths = item.paths,
        strategy = item.strategy, negative = item.negative, index = i - 1, number = k - 1,
        many = #seeds[i] > 1}
    end
  end
end

-- makes each rendering of another pipeline the last reference of one here
local function take_after(items, clips)
  if #clips ~= #items then
    base.raise("MR_E_USAGE", ("sample: after = %d clips, but there are %d renderings; expected one "
      .. "for each; try: the same prompts and seeds"):format(#clips, #items))
  end
  for i, item in ipairs(items) do
    item.paths = table.move(item.paths, 1, #item.paths, 1, {})
    item.strategy = item.strategy or ("0,%d"):format(#item.paths)
    table.insert(item.paths, clips[i].path or clips[i])
  end
end

-- a side rounded up to whole cells
local function whole(side, cell) return cell and -(-side // cell) * cell or side end

--- Refuses fields that only another way of rendering uses.
---@param settings table   baked
---@param fields string[]  fields of sampling
---@param instead string   what to try
function request.refuse(settings, fields, instead)
  for _, name in ipairs(fields) do
    local field = "sampling." .. name
    if settings.sampling[name] and not settings:origin(field):find("^default") then
      blame.raise(settings, field, "MR_E_USAGE", "%s = %s: model.type = %s does not "
        .. "use it; try: %s", field, kinds.show(settings:get(field)), settings.model.type, instead)
    end
  end
end

--- Reads options over settings.
---@param given table        as in sampler:render
---@param settings table     baked: sampling, scheduler, resolutions
---@param along table        the flow module: moonreel.sample.rflow, moonreel.sample.shifted
---@param pipe table         cleans: captions are cleaned before they are encoded; cell: sides are
---   multiples of this number of pixels; nil: of any
---@return table             frames, height, width, fps, save_fps, batch, loop, num_sample, and the
---   results of along.read; items: {prompt, words, seed, paths, strategy, negative, index, number,
---   many: its prompt has several}; sink, watch, progress
function request.read(given, settings, along, pipe)
  local o, s = read(given), settings
  o.prompts = o.prompts or {}
  local function pick(name, fallback)
    if o[name] ~= nil then
      return o[name]
    end
    return fallback
  end
  local height, width = pick("height", s.sampling.height), pick("width", s.sampling.width)
  if not (height and width) then
    height, width = named_size(s, pipe.cell)
  end
  local fps, interval = pick("fps", s.sampling.fps), s.sampling.frame_interval
  local r = {height = whole(height, pipe.cell), width = whole(width, pipe.cell),
    frames = pick("frames", s.sampling.frames), fps = fps,
    save_fps = pick("save_fps", s.sampling.save_fps)
      or interval and math.max(1, fps // interval) or fps,
    loop = pick("loop", s.sampling.loop) or 1,
    num_sample = pick("num_sample", s.sampling.num_sample) or 1,
    items = {}, sink = o.sink, watch = o.watch, progress = o.progress}
  if r.frames > 1 and not (r.save_fps > 0 and r.save_fps <= FASTEST) then
    base.raise("MR_E_USAGE", ("sample: a file with %g frames a second; expected above 0, at most "
      .. "%d; try: --save-fps 24"):format(r.save_fps, FASTEST))
  end
  for name, value in pairs(along.read(o, s)) do
    r[name] = value
  end
  items_of(r, o, s, along, pipe)
  if o.after then
    take_after(r.items, o.after)
  end
  r.batch = math.min(pick("batch_size", s.sampling.batch_size or s.batch_size or 1),
    math.max(#r.items, 1))
  return r
end

return request
