--- `moonreel watch RUN`: render the checkpoints of a run as they appear.
-- @module moonreel.cli.watch
local base = require "moonreel.core.base"

local command = {
  name = "watch",
  summary = "render the checkpoints of a run as they appear",
  usage = "watch RUN [--preset low4s,high4s,low16s] [options] [key=value ...]",
  overrides = true,
  most = 1,
  options = {
    { "--preset NAMES", "low4s, high4s, low16s: lengths and sizes, one set of renderings for each "
      .. "(default: those of the recipe)" },
    { "--prompt TEXT", "text to render; may be given several times (default: sampling.prompts, or "
      .. "lines of sampling.prompt_path)", many = true },
    { "--seed N", "seed of the noise; may be given several times (default: sampling.seeds)",
      many = true },
    { "--size HxW", "pixels, in place of a preset" },
    { "--frames N", "frames, or a length such as 4s or 2x; 1: a picture" },
    { "--steps N", "Euler steps", least = 1 },
    { "--guidance X", "1: none" },
    { "--fps X", "frame rate given to the model and used for the file" },
    { "--batch-size N", "renderings side by side", least = 1 },
    { "--ema", "the averaged weights (default: sampling.ema)" },
    { "--raw", "the weights themselves" },
    { "--eval-loss", "measure the evaluation loss of each checkpoint, by bucket and time, on the "
      .. "samples that dataset.hold_back excludes; if there are none, on all samples" },
    { "--loss-only", "with --eval-loss: do not render" },
    { "--metric FILE", "a Lua file that calls watch.metric(function(frames, prompt) ... return "
      .. "number end): metrics of each rendering" },
    { "--last-step N", "skip checkpoints up to this step", least = 0 },
    { "--only-first-of-epoch", "only the first checkpoint of each epoch, and the last one" },
    { "--every N", "only checkpoints whose step is a multiple of N", least = 1 },
    { "--compute-only", "only write files; the run's journal, TensorBoard and W&B get no entry" },
    { "--save-to FOLDER", "write renderings to this folder instead of the run's; the run gets no "
      .. "entry" },
    { "--once", "render the present checkpoints, then end" },
    { "--due", "do the work that the run has postponed for sampling.every and, with --eval-loss, "
      .. "for eval.every, then end" },
    { "--pull HOST:RUN", "copy the checkpoints of a run on another host, without optimizer state, "
      .. "to RUN (default: pulled/NAME), and render them here" },
    { "--device NAME", "device to compute on (default: the recipe's)" },
    { "--threads N", "compute threads", least = 1 },
    { "--expnums N", "not supported: use RUN" },
    { "--json", "a line of JSON for each set of renderings" },
  },
  details = "Each complete, verified checkpoint is rendered once, in the order of its steps, into "
    .. "RUN/samples/stepN/SET; a folder appears when it is complete. If `watch` was killed, it "
    .. "continues where it was. It ends when the run has ended and everything is rendered. While "
    .. "it renders a checkpoint, the run does not remove it.\nRUN is a folder, or the name or "
    .. "number of a run in outputs/; it may be running. Exit codes: 1 if a rendering failed, 8 if "
    .. "a checkpoint stayed incomplete.",
}

local function usage(...) base.raise("MR_E_USAGE", "watch: " .. string.format(...)) end

local function number(name, text, low)
  local v = tonumber(text)
  if not v or v < low then
    usage("--%s: expected a number of at least %s, got '%s'", name, low, text)
  end
  return v
end

local function size(text)
  local h, w = text:match "^(%d+)[xX](%d+)$"
  if not h or tonumber(h) < 1 or tonumber(w) < 1 then
    usage("--size: expected HxW in pixels, got '%s'", text)
  end
  return math.tointeger(tonumber(h)), math.tointeger(tonumber(w))
end

-- refuses options of the reference's server, and names what does the same here
local function refuse(o)
  if o.expnums then
    usage("--expnums %s: expected a run; try: moonreel watch %s", o.expnums,
      o.expnums:match "^[%w._-]+$" and o.expnums or "RUN")
  elseif o.save_to == "new" then
    usage("--save-to new: renderings get no W&B run of their own, they belong to the run, by "
      .. "its journal; try: without it, then moonreel log RUN --export wandb")
  elseif o.raw and o.ema then
    usage("--raw and --ema exclude each other")
  elseif o.loss_only and not o.eval_loss then
    usage("--loss-only: expected --eval-loss with it")
  elseif o.preset and (o.size or o.frames) then
    usage("--preset names lengths and sizes; expected either it or --%s", o.size and "size"
      or "frames")
  end
end

-- the requested sets of renderings
local function sets_of(o)
  local asked = { loss = o.eval_loss, loss_only = o.loss_only, prompts = o.prompt, steps = o.steps,
    batch_size = o.batch_size }
  if o.preset then
    asked.presets = {}
    for name in (o.preset .. ","):gmatch "([^,]*)," do
      asked.presets[#asked.presets + 1] = name
    end
  end
  for i, text in ipairs(o.seed or {}) do
    asked.seeds = asked.seeds or {}
    asked.seeds[i] = math.tointeger(number("seed", text, 0))
      or usage("--seed: expected a whole number, got '%s'", text)
  end
  asked.frames = o.frames and require("moonreel.sample.names").frames(o.frames)
  if o.size then
    asked.height, asked.width = size(o.size)
  end
  asked.guidance = o.guidance and number("guidance", o.guidance, 0)
  asked.fps = o.fps and number("fps", o.fps, 0.001)
  return require("moonreel.watch.sets").of(asked)
end

-- prints a line for each event of a set
local function teller(o)
  local json, output = require "moonreel.core.json", require "moonreel.text.output"
  return function(event)
    local text
    if o.json then
      text = json.encode(event)
    elseif event.state == "failed" then
      text = ("step %d  %s%s  failed: %s"):format(event.step, event.stage and event.stage .. "  "
        or "", event.set, event.text)
    else
      local numbers = {}
      for name, value in pairs(event.scalars or {}) do
        -- losses at single times are in the files only
        if not name:find "^eval_loss/.*/t" then
          numbers[#numbers + 1] = ("  %s %.4g"):format(name, value)
        end
      end
      table.sort(numbers)
      text = ("step %d  %s%s  %.1f s  %s%s"):format(event.step, event.stage and event.stage .. "  "
        or "", event.set, event.seconds, event.path, table.concat(numbers))
    end
    output.write(io.stdout, text, "\n")
  end
end

local function note(line) io.stderr:write("note: ", line, "\n") end

-- the folder of the run, and what copies checkpoints into it
local function run_of(parsed)
  local o, word = parsed.options, parsed.positional[1]
  if o.pull then
    return require("moonreel.watch.pull").open(o.pull, word, { last_step = o.last_step,
      note = note })
  elseif not word then
    usage("expected a run; usage: moonreel %s", command.usage)
  end
  return { dir = require("moonreel.runs.find").one(word, "watch") }
end

function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local o = parsed.options
  refuse(o)
  local ema = o.ema
  if o.raw then
    ema = false
  end
  local sets, signal = sets_of(o), require "moonreel.core.signal"
  local place = run_of(parsed)
  local watching <close> = require("moonreel.watch").open(place.dir, { sets = sets,
    last_step = o.last_step, every = o.every, only_first_of_epoch = o.only_first_of_epoch,
    pinned = o.due, once = o.once, save_to = o.save_to, silent = o.compute_only, ema = ema,
    device = o.device, threads = o.threads, overrides = parsed.overrides,
    metrics = o.metric and require("moonreel.watch.metric").load(o.metric,
      require("moonreel.cli.script").load) or nil,
    loss = o.eval_loss and require("moonreel.job.eval_loss").measure or nil,
    pull = place.pull, tell = teller(o), progress = function()
      if signal.pending() then
        base.raise("MR_E_STOPPED", "stopped by a signal")
      end
    end,
    note = note })
  local counts, code = require("moonreel.cli.longwork").run(function() return watching:run() end,
    "sets", "what was rendered is kept; the same command continues", true)
  if place.close then
    place.close()
  end
  if not counts then
    return code
  end
  if #counts.left > 0 then
    io.stderr:write(("moonreel: watch: %s: incomplete checkpoints: %s; try: moonreel ckpt "
      .. "verify\n"):format(place.dir, table.concat(counts.left, ", ")))
  end
  return #counts.left > 0 and 8 or counts.failed > 0 and 1 or 0
end

return command
