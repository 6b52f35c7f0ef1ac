--- `moonreel sample RECIPE|CKPT|FOLDER`: render prompts with the weights of a checkpoint.
-- @module moonreel.cli.sample
local base = require "moonreel.core.base"

-- A list may go on after an option, as on the reference's command line: words after the recipe that
-- are neither options nor fields belong to the list.
local function of_list(word, parsed)
  return #parsed.positional > 0 and not word:find("^%-") and not word:find("^%a[%w_%.:%-]*=")
end

local function of_size(word) return word:find("^%d+$") ~= nil end

local command = {
  name = "sample",
  summary = "render prompts with the weights of a checkpoint",
  usage = "sample RECIPE|CKPT|RUN|FOLDER --prompt TEXT [options] [key=value ...]",
  overrides = true,
  options = {
    { "--prompt TEXT", "text to render; may be given several times, or take several texts after "
      .. "the recipe (default: sampling.prompts, or lines of sampling.prompt_path)",
      many = true, takes = of_list, empty = true },
    { "--seed N", "seed of the noise; may be given several times (default: sampling.seeds)",
      many = true },
    { "--size HxW", "pixels (default: sampling.height and width, or sampling.resolution at its "
      .. "aspect_ratio)", takes = of_size },
    { "--image-size H W", "the same", takes = of_size },
    { "--frames N", "frames, or a length such as 4s or 2x; 1: a picture" },
    { "--num-frames N", "the same" },
    { "--preset NAME", "low4s, high4s, low16s: a length and a size" },
    { "--steps N", "Euler steps (default: scheduler.num_sampling_steps, for 2.0 "
      .. "sampling.num_steps)" },
    { "--guidance X", "1: no guidance (default: scheduler.cfg_scale, for 2.0 sampling.guidance)" },
    { "--fps X", "frame rate given to the model and used for the file" },
    { "--batch-size N", "renderings in a batch (default: sampling.batch_size, or batch_size)" },
    { "--reference-path FILE;FILE", "reference images and clips of a prompt; once per prompt",
      many = true, takes = of_list, empty = true },
    { "--mask-strategy TEXT", "frames that a prompt takes from its references: "
      .. "LOOP,REFERENCE,FROM,TO,LENGTH,EDIT;...; once per "
      .. "prompt", many = true, takes = of_list, empty = true },
    { "--raw", "use the weights themselves instead of their average" },
    { "--ema", "the averaged weights (default: sampling.ema)" },
    { "--out DIR", "folder for the files (default: sampling.save_dir, or the next free number in "
      .. "samples/); existing files are refused" },
    { "--overwrite", "replace files of the same name" },
    { "--sheet", "write frames of all renderings in one picture, sheet.png in the same folder" },
    { "--threads N", "compute threads" },
    { "--llm-refine", "not supported: prompts are refined by a service, and moonreel uses none" },
    { "--prompt-generator NAME", "not supported, like --llm-refine" },
    { "--watermark", "not supported: nothing is drawn over the frames" },
    { "--verbose N", "0: no progress (default 1)", least = 0 },
    { "--json", "list the files as JSON" },
  },
  details = "A RECIPE means its newest run in `outputs`, or the weights of --ckpt-path. A "
    .. "checkpoint needs no other file; a FOLDER has config.json next to its weights. Fields "
    .. "(--loop 4, --resolution 720p, --aes 6.5; `moonreel help fields`) override those of the "
    .. "recipe or checkpoint. Ranks (moonreel -n 8 sample ...) render together as plugin_config "
    .. "says.",
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

local function size(name, text)
  local h, w = text:match("^(%d+)[xX ](%d+)$")
  if not h or tonumber(h) < 1 or tonumber(w) < 1 then
    usage("--%s: expected HxW or H W in pixels, got '%s'", name, text)
  end
  return math.tointeger(h), math.tointeger(w)
end

-- the option that sets a size; nil if there is none
local function named_size(overrides)
  for _, one in ipairs(overrides) do
    local field = one.key:gsub("^sampling%.", ""):gsub("-", "_")
    if field == "resolution" or field == "aspect_ratio" then
      return one.argument
    end
  end
end

-- applies a preset as fields; the command line overrides them
local function apply_preset(o, overrides)
  local preset = require("moonreel.sample.presets").of(o.preset, "sample")
  o.frames = o.frames or o.num_frames or preset.frames
  table.move(overrides, 1, #overrides, #preset.overrides + 1)
  table.move(preset.overrides, 1, #preset.overrides, 1, overrides)
end

-- a field that is given twice would keep only the last list, so it is refused
local function check_lists(overrides)
  local seen = {}
  for _, one in ipairs(overrides) do
    local name = ({ref = "reference_path"})[one.key] or one.key:gsub("^sampling%.", "")
    if seen[name] and (name == "reference_path" or name == "neg" or name == "mask_strategy") then
      usage("%s and %s: a field is given once; try: sampling.%s={\"...\", \"...\"}, a text for "
        .. "each prompt%s", seen[name], one.argument, name, name ~= "neg"
        and (", or --%s once per prompt"):format((name:gsub("_", "-"))) or "")
    end
    seen[name] = one.argument
  end
end

-- options of the command line in the form that render takes
local function render_options(o)
  local r = {references = o.reference_path, strategies = o.mask_strategy}
  if o.seed then
    r.seeds = {}
    for i, text in ipairs(o.seed) do
      r.seeds[i] = number("seed", text, true, 0)
    end
  end
  if o.size or o.image_size then
    r.height, r.width = size(o.size and "size" or "image-size", o.size or o.image_size)
  end
  if o.frames and o.num_frames then
    usage("--frames %s and --num-frames %s are the same; expected one of them", o.frames,
      o.num_frames)
  end
  local frames = o.frames or o.num_frames
  r.frames = frames and require("moonreel.sample.names").frames(frames)
  r.steps = o.steps and number("steps", o.steps, true, 1)
  r.guidance = o.guidance and number("guidance", o.guidance, false, 0)
  r.fps = o.fps and number("fps", o.fps, false, 0.001)
  r.batch_size = o.batch_size and number("batch-size", o.batch_size, true, 1)
  return r
end

-- what to open; a recipe stands for its newest run, or for its weights
local function prepare(spec, overrides, options)
  spec = require("moonreel.runs.find").named(spec) or spec
  local is_recipe = spec:find("%.lua$")
    or not (base.exists(spec) or spec:find("[@*?%[]") or spec:find("^%d+$"))
  if not is_recipe then
    options.overrides = overrides
    return require("moonreel.sample").prepare(spec, options)
  end
  local settings = require("moonreel.settings").bake(spec, overrides,
    { may_be = { what = "recipe, run or checkpoint", path = spec } })
  options.outputs = settings.outputs
  if settings.ckpt_path then
    options.settings = settings
    return require("moonreel.sample").prepare(settings.ckpt_path, options)
  end
  local name = require("moonreel.trainer.check").name(settings)
  local found, reason = require("moonreel.ckpt").resolve(settings.load or "latest",
    settings.outputs, name)
  if not found then
    usage("%s; try: moonreel train %s", reason, spec)
  end
  if settings.stages then
    local _, stage = require("moonreel.run").outer(found.run or "")
    if not stage then
      usage("%s does not belong to a run with stages; try: moonreel sample %s", found.candidates[1],
        found.candidates[1])
    end
    settings = require("moonreel.settings").bake(spec, overrides, {stage = stage})
  end
  -- The models are those of the run. What to render, and how, is set by the recipe and by the
  -- fields of the command line.
  options.defaults = settings
  return require("moonreel.sample").prepare(found.fallback and found.run or found.candidates[1],
    options)
end

-- refuses options of the reference's script that this program does not have, each with the reason
local function refuse(o)
  if o.llm_refine or o.prompt_generator then
    usage("--%s: prompts are refined by a service that this program does not ask; try: "
      .. "refined texts by --prompt-path FILE", o.llm_refine and "llm-refine" or "prompt-generator")
  end
  if o.watermark then
    usage("--watermark: nothing is drawn over the frames; try: without it")
  end
end

local LONG_S = 10  -- if all steps take longer, their number is printed before the first

-- Returns a function that shows progress. Before the first step it prints how long the steps will
-- take, if they take long. Then it redraws one line: the current step and the time that remains.
local function show_progress()
  local started, write = base.now_s(), require("moonreel.cli.longwork").line()
  return function(done, total, expected_s)
    if done > 0 then
      write(function()
        return ("step %d of %d, %.0f s left"):format(done, total,
          (base.now_s() - started) / done * (total - done))
      end)
    elseif expected_s and expected_s >= LONG_S then
      io.stderr:write(("%d steps, about %.1f s each\n"):format(total, expected_s / total))
    end
  end
end

-- writes a line of frames for each file; returns the path
local function write_sheet(path, clips)
  local rows = {}
  for i, clip in ipairs(clips) do
    rows[i] = {file = clip.path, start = 0, frames = clip.frames, height = clip.height,
      width = clip.width, text = clip.prompt}
  end
  require("moonreel.data.sheet").write(path, rows)
  return path
end

-- of ranks that render together the first writes files; the others only know the names
local function nowhere(item)
  return { write = function() end, finish = function() return item end }
end

-- writes the frames of a request to the files that are named for it
local function into_files(r, folder, names)
  if not folder then
    r.sink = nowhere
    return r
  end
  local output = require "moonreel.sample.output"
  function r.sink(item, asked)
    local stem = folder:path() .. "/" .. names:stem(item)
    base.make_dir(stem:match("^(.*)/"))
    return output.file(stem, item, asked.save_fps, names.text and item.words or nil)
  end
  return r
end

-- the pipeline that makes pictures, from which clips continue, in a folder next to the clips
local function pictures_of(asked)
  local blame = require "moonreel.settings.blame"
  local first_frame, names = require "moonreel.sample.first_frame", asked.names
  local s = asked.prepared.defaults
  local settings, path = first_frame.settings(s)
  local place = { text = names.text, stem = function(_, item)
    return (names.folder and names.folder .. "/" or "") .. "generated_condition/"
      .. names:stem(item):match("[^/]+$")
  end }
  return { open = function()
    return blame.renamed(settings, first_frame.moved, require("moonreel.sample").open, path,
      { settings = settings, ema = asked.how.ema, threads = asked.how.threads })
  end, ask = function()
    return into_files(first_frame.options(s, asked.options, asked.prepared:cell()), asked.folder,
      place)
  end }
end

-- the request: settings to open, options of a rendering, names of its files
local function ask(parsed, team)
  local o = parsed.options
  local how = { threads = o.threads and number("threads", o.threads, true, 1), team = team }
  how.ema = o.ema
  if o.raw then
    how.ema = false
  end
  local r = render_options(o)
  check_lists(parsed.overrides)
  local prepared = prepare(parsed.positional[1], parsed.overrides, how)
  for _, note in ipairs(team.leads and prepared.notes or {}) do
    io.stderr:write("note: ", note, "\n")
  end
  local s, prompts = prepared.defaults, require "moonreel.sample.prompts"
  require("moonreel.settings.uses").refuse_in_rendering(parsed.overrides, s)
  s:require_readers("model")
  s:require_readers("sampling")
  local found = prompts.read(o.prompt, s)
  for name, list in pairs(prompts.options(found.rows)) do
    r[name] = r[name] or list
  end
  r.progress = team.leads and o.verbose ~= 0 and show_progress() or nil
  if s.sampling.use_t2i2v and team.size > 1 then
    require("moonreel.settings.blame").raise(s, "sampling.use_t2i2v", "MR_E_RECIPE", "use_t2i2v = "
      .. "true: %d ranks render from a caption alone; try: one rank, or use_t2i2v = false",
      team.size)
  elseif s.sampling.use_t2i2v then
    require("moonreel.sample.first_frame").check(s, s.sampling.cond_type or "t2v",
      next(r.references or {}) ~= nil)
  end
  local request = prepared:read(r)
  return { prepared = prepared, how = how, options = r, request = request,
    names = require("moonreel.sample.naming").new(found, s, request),
    first_frame = s.sampling.use_t2i2v,
    folder = team.leads and require("moonreel.sample.folder").new(o.out or s.sampling.save_dir)
      or nil }
end

-- Renders all requested clips into files. After a signal it returns nil and the exit code.
local function render(asked)
  local list = { asked.first_frame and pictures_of(asked) or nil }
  list[#list + 1] = { open = function() return asked.prepared:open() end, ask = function(pictures)
    local options = pictures and require("moonreel.sample.first_frame").goes_on(asked.options,
      pictures) or asked.options
    return into_files(options, asked.folder, asked.names)
  end }
  return require("moonreel.cli.longwork").run(function()
    return require("moonreel.sample.chain").render(list)
  end, "steps", "finished videos are kept", true)
end

-- prints what was written
local function report(asked, clips, o)
  local rows, request, folder = {}, asked.request, asked.folder
  if clips[1].height ~= request.height or clips[1].width ~= request.width then
    io.stderr:write(("note: frames are %d x %d, not %d x %d: whole cells of the autoencoder\n")
      :format(clips[1].height, clips[1].width, request.height, request.width))
  end
  if base.is_terminal(2) and o.verbose ~= 0 then
    io.stderr:write("\r\27[K")
  end
  for i, clip in ipairs(clips) do
    rows[i] = {path = clip.path, prompt = clip.prompt, seed = clip.seed, frames = clip.frames,
      height = clip.height, width = clip.width}
    if not o.json then
      print(clip.path)
    end
  end
  local sheet = o.sheet and write_sheet(folder:path() .. "/sheet.png", clips) or nil
  if o.json then
    local json = require "moonreel.core.json"
    print(json.encode{checkpoint = asked.prepared.path, step = asked.prepared.step,
      files = json.array(rows), sheet = sheet})
  elseif sheet then
    print(sheet)
  end
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
  refuse(o)
  if o.preset then
    apply_preset(o, parsed.overrides)
  end
  local sized = named_size(parsed.overrides)
  if sized then
    require("moonreel.sample.presets").clear_size(parsed.overrides, sized)
  end
  local team = require("moonreel.comm.team").new(require("moonreel.comm").world())
  local asked = ask(parsed, team)
  local _ <close> = asked.prepared
  local folder <close> = asked.folder
  if folder and not o.overwrite then
    local files = asked.names:files()
    files[#files + 1] = o.sheet and "sheet.png" or nil
    folder:keep(files)
  end
  local clips, code = render(asked)
  if not clips then
    return code
  end
  if team.leads then
    report(asked, clips, o)
  end
  return 0
end

return command
