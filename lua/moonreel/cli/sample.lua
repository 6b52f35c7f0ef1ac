--- `moonreel sample RECIPE|CKPT`: render prompts from a checkpoint.
-- @module moonreel.cli.sample
local base = require "moonreel.core.base"

local command = {
  name = "sample",
  summary = "render prompts from a checkpoint",
  usage = "sample RECIPE|CKPT|RUN --prompt TEXT [options] [key=value ...]",
  overrides = true,
  options = {
    { "--prompt TEXT", "what to show; may be given several times (default: sampling.prompts, or "
      .. "lines of sampling.prompt_path)",
      many = true },
    { "--seed N", "start noise; may be given several times (default: sampling.seeds)",
      many = true },
    { "--size HxW", "pixels (default: sampling.height and width, else sampling.resolution at its "
      .. "aspect_ratio)" },
    { "--frames N", "frames; 1: a picture" },
    { "--steps N", "Euler steps (default: scheduler.num_sampling_steps)" },
    { "--guidance X", "1: none (default: scheduler.cfg_scale)" },
    { "--fps X", "rate the model is told, and of the file" },
    { "--raw", "the weights themselves instead of their average" },
    { "--ema", "the averaged weights (default: sampling.ema)" },
    { "--out DIR", "folder for the files (default: sampling.save_dir, else samples)" },
    { "--threads N", "compute threads" },
    { "--json", "list the files as JSON" },
  },
  details = "A RECIPE means its newest run under `outputs`, or the weights of --ckpt-path. A "
    .. "checkpoint needs nothing beside it.",
}

local function usage(...) base.raise("MR_E_USAGE", "sample: " .. string.format(...)) end

local function number(name, text, integer, low)
  local v = tonumber(text)
  if integer then
    v = v and math.tointeger(v)
  end
  if not v or v < low then
    usage("--%s: expected %s of at least %s, got '%s'", name, integer and "a whole number"
      or "a number", low, text)
  end
  return v
end

-- options of the command line as render takes them
local function render_options(o)
  local r = {prompts = o.prompt, seeds = nil}
  if o.seed then
    r.seeds = {}
    for i, text in ipairs(o.seed) do
      r.seeds[i] = number("seed", text, true, 0)
    end
  end
  if o.size then
    local h, w = o.size:match("^(%d+)[xX](%d+)$")
    if not h or tonumber(h) < 1 or tonumber(w) < 1 then
      usage("--size: expected HxW in pixels, got '%s'", o.size)
    end
    r.height, r.width = math.tointeger(h), math.tointeger(w)
  end
  r.frames = o.frames and number("frames", o.frames, true, 1)
  r.steps = o.steps and number("steps", o.steps, true, 1)
  r.guidance = o.guidance and number("guidance", o.guidance, false, 0)
  r.fps = o.fps and number("fps", o.fps, false, 0.001)
  return r
end

-- what to open: a recipe stands for its newest run or its weights
local function open(spec, overrides, options)
  local is_recipe = spec:find("%.lua$") or not (base.exists(spec) or spec:find("[@*?%[]")
    or spec:find("^%d+$"))
  if not is_recipe then
    if #overrides > 0 then
      usage("%s: fields are set with a recipe, a checkpoint brings its own", overrides[1].key)
    end
    return require("moonreel.sample").open(spec, options)
  end
  local settings = require("moonreel.settings").bake(spec, overrides)
  options.outputs = settings.outputs
  if settings.ckpt_path then
    options.settings = settings
    return require("moonreel.sample").open(settings.ckpt_path, options)
  end
  local name = require("moonreel.trainer.setup").name(settings)
  local found, reason = require("moonreel.ckpt").resolve(settings.load or "latest",
    settings.outputs, name)
  if not found then
    usage("%s; try: moonreel train %s", reason, spec)
  end
  if settings.stages then
    local _, stage = require("moonreel.run").outer(found.run or "")
    if not stage then
      usage("%s is of no run with stages; try: moonreel sample %s", found.candidates[1],
        found.candidates[1])
    end
    settings = require("moonreel.settings").bake(spec, overrides, {stage = stage})
  end
  -- the run's own models; what and how to render is the recipe's, with the fields of the command
  -- line
  options.defaults = settings
  return require("moonreel.sample").open(found.fallback and found.run or found.candidates[1],
    options)
end

-- a prompt per line
local function lines_of(path)
  if not path then
    return nil
  end
  local prompts = {}
  for line in base.read_file(path):gmatch("[^\r\n]+") do
    prompts[#prompts + 1] = line
  end
  return prompts
end

function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local o = parsed.options
  if #parsed.positional ~= 1 then
    usage("expected one recipe or checkpoint, got %d; try: moonreel sample CKPT --prompt TEXT",
      #parsed.positional)
  end
  if o.raw and o.ema then
    usage("--raw and --ema exclude each other")
  end
  local r, ema = render_options(o), o.ema
  if o.raw then
    ema = false
  end
  local sampler <close> = open(parsed.positional[1], parsed.overrides,
    {ema = ema, threads = o.threads and number("threads", o.threads, true, 1)})
  for _, note in ipairs(sampler.notes) do
    io.stderr:write("note: ", note, "\n")
  end
  local defaults = sampler.defaults
  defaults:require_readers("sampling")
  r.prompts = r.prompts or defaults:plain("sampling.prompts")
    or lines_of(defaults.sampling.prompt_path)
  if not r.prompts or #r.prompts == 0 then
    usage("no prompt; try: --prompt \"a red circle going up\"")
  end

  local out, rows, live = o.out or defaults.sampling.save_dir or "samples", {}, base.is_terminal(2)
  base.make_dir(out)
  if live then
    r.watch = function(i) io.stderr:write(("\rstep %d\27[K"):format(i)) end
  end
  local clips = sampler:render(r)
  if live then
    io.stderr:write("\r\27[K")
  end
  local per_prompt = #clips // #r.prompts
  for i, clip in ipairs(clips) do
    local stem = ("%s/sample_%04d%s"):format(out, (i - 1) // per_prompt,
      per_prompt > 1 and "-" .. (i - 1) % per_prompt or "")
    rows[i] = {path = require("moonreel.sample").write(clip, stem), prompt = clip.prompt,
      seed = clip.seed, frames = clip.frames,
      height = clip.height, width = clip.width}
    if not o.json then
      print(rows[i].path)
    end
  end
  if o.json then
    local json = require "moonreel.core.json"
    print(json.encode{checkpoint = sampler.path, step = sampler.step, files = json.array(rows)})
  end
  return 0
end

return command
