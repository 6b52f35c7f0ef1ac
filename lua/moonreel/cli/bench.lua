--- `moonreel bench`: speed and memory of this machine, beside its own limits and PyTorch.
-- @module moonreel.cli.bench
local json = require "moonreel.core.json"
local runs = require "moonreel.bench.show"
local words_of = require "moonreel.settings.words"

local command = {
  name = "bench",
  summary = "measure steps and kernels against the machine's limits and PyTorch",
  usage = "bench [step|demo-step|weights|follow|muon|kernels|conv|each|packing|graph|shapes|save|"
    .. "cli|encoders|vae|comm|ranks|data|order|plan] "
    .. "[--save NAME] [--model NAME] [--threads N] "
    .. "[--dtype f32|bf16] [--seconds S] [--no-peer] [--python FILE] [--ops] [--json]",
  options = {
    {"step", "forward and backward of a cut of a released model, as the trainer builds it with "
      .. "and without grad_checkpoint: TFLOP/s, share of the product peak, memory; in turn with "
      .. "PyTorch's"},
    {"demo-step", "a whole training step of recipes/tiny/demo.lua: tokens per second"},
    {"weights", "what watching the weights takes of the time of the demo, beside its aim"},
    {"follow", "a step of the demo with both trackers, weights and hosts under watch, in turn with "
      .. "the same step without, beside its aim"},
    {"muon", "a step of the demo with optim.type = muon, in turn with the same by adamw, beside "
      .. "its aim"},
    {"kernels", "single ops at the sizes of `step`"},
    {"conv", "convolutions of the video autoencoders in f32 and bf16, with the operations and "
      .. "bytes of each, beside the product peak and PyTorch's, channels last"},
    {"each", "step and demo-step on every instruction set from AVX2 on and in every dtype that is "
      .. "fast there, each in a program of its own, beside PyTorch held to the same: seconds, "
      .. "share of the peak, memory, and what each aims at"},
    {"packing", "what packing weights takes of the products of models: what a step or a rendering "
      .. "would gain at most if weights were kept packed"},
    {"graph", "what building a step takes before it runs: milliseconds and microseconds per node "
      .. "of forward, backward, finish and compile at three depths"},
    {"save", "what a checkpoint takes: the stall of a save beside a plain copy of the state, and "
      .. "verifying one beside reading it"},
    {"cli", "what a user waits for: bake, prompt, show, a large checkpoint from a cold cache, "
      .. "plans of large runs; each beside its aim"},
    {"encoders", "the video autoencoder and T5 XXL of Open-Sora 1.2 at their released sizes: 17 "
      .. "frames of 144p and a caption, seconds and peak of memory beside PyTorch's; minutes"},
    {"vae", "the Hunyuan video autoencoder at its released sizes: 17 frames of 144p encoded and "
      .. "decoded, seconds and peaks of memory in turn with diffusers (which has no class for "
      .. "clips through DC-AE), three pairs at least; minutes"},
    {"--narrow N", "vae: widths of all levels divided by N, on both sides (default 1)", least = 1},
    {"comm", "what ranks tell each other: microseconds and GB/s by size, over memory that they "
      .. "share, over TCP as it is, sealed and encrypted, and over MPI, beside MPI's own calls"},
    {"ranks", "a step of the demo by ranks of one thread each, beside the same work by one: what "
      .. "they cost beyond their parts of it and what they tell each other, by the clock and in "
      .. "seconds of processors"},
    {"data", "what data takes before it is trained on, each line beside its aim: an index built, "
      .. "decoding and scanning, memory, torn samples, and what `order` "
      .. "says; the same clips through other readers"},
    {"order", "planning an epoch of made-up rows by opensora-1.2/stage2, its samples "
      .. "found, rows looked up, each line beside its aim"},
    {"plan", "seconds that are predicted from rates measured on other shapes, beside what the same "
      .. "run measures: the demo's steps, the fixed step and three sizes of STDiT3"},
    {"shapes", "buckets of Open-Sora 1.2, planned one after the other as a run compiles them: how "
      .. "many are kept within programs_bytes, and the time of each"},
    {"--save NAME", "write rates of this machine, by op and size, to NAME.lua, a machine for "
      .. "`moonreel plan --machine ./NAME.lua`; nothing else is measured"},
    {"--rows N", "data, order: of the index that is built (default 1000000); order plans a "
      .. "hundred times as many", least = 1000},
    {"--clips N", "data: decoded by one worker for its memory (default 1500)", least = 30},
    {"--ffmpeg FILE", "data: the ffmpeg tool to compare with (default: ffmpeg)"},
    {"--layer TEXT", "conv: only layers whose name, as it is printed, has TEXT"},
    {"--shapes N", "shapes: how many (default 200)", least = 1},
    {"--journal N", "follow: a run that goes on behind a journal of N steps, in turn with a "
      .. "new one", least = 20},
    {"--ranks N", "comm, ranks: how many (default 2)", least = 2},
    {"--bytes N", "comm: of a large message (default 16 MiB)", least = 4},
    {"--threads N", "team size (default: all cores)", least = 1},
    {"--dtype TYPE", "f32 or bf16 (default: bf16 where the processor has it; demo-step: the "
      .. "recipe's)"},
    {"--seconds S", "time to spend per measurement (default 5); cli: at most 7 starts"},
    {"--peer", "run the same in PyTorch when it is installed (default; --no-peer leaves it out)"},
    {"--python FILE", "interpreter whose PyTorch is the peer (default: python3); a step is "
      .. "tried as it is and by torch.compile first, in 400 s, then five turns get 90 s each"},
    {"--grad-checkpoint", "step: PyTorch is compared where both do blocks twice to keep less, as "
      .. "Open-Sora 1.2 trains; without it where both keep everything"},
    {"--model NAME", "step: of stdit3, two pairs of blocks of width 1152 (default), or of mmdit, "
      .. "two double and four single blocks of width 1024"},
    {"--ops", "time per op of the step"},
    {"--dir DIR", "save, encoders: a new folder for files (default: one in /tmp)"},
    {"--json", "one JSON object"},
  },
  details = "Without a name the first three run, one after the other. `step` and "
    .. "`kernels` measure a limit and what is held against it in turn and give medians; the other "
    .. "rates are of the best run. The product peak is the best packed product of a fixed list of "
    .. "shapes, same dtype and threads.",
}

-- writes a machine file
local function save_machine(path, o)
  local base = require "moonreel.core.base"
  path = path:gsub("%.lua$", "") .. ".lua"
  local name = path:match("([^/]+)%.lua$")
  base.replace_file(path, require("moonreel.bench.plan").text(name, o))
  print(("%s: rates of this machine; try: moonreel plan RECIPE --machine %s"):format(path,
    path:find("/", 1, true) and path or "./" .. path))
  return 0
end

local function clean(value)
  if value ~= value or value == math.huge then
    return json.null
  end
  return value
end

-- strings, numbers and tables of them as JSON takes them
local function plain(value)
  if type(value) ~= "table" then
    return clean(value)
  end
  local out = {}
  for k, v in pairs(value) do
    out[k] = plain(v)
  end
  return #value > 0 and json.array(out) or out
end

function command.run(args)
  local fault = require "moonreel.recipe.fault"
  local parsed = words_of.parse(args, command)
  local names, o = parsed.positional, parsed.options
  if #names == 0 then
    names = {"step", "demo-step", "kernels"}
  end
  for _, name in ipairs(names) do
    if not runs[name] then
      fault.usage("bench: '%s': expected step, demo-step, weights, follow, muon, kernels, conv, "
        .. "each, packing, graph, shapes, save, cli, encoders, vae, comm, ranks, data, order or "
        .. "plan",
        name)
    end
  end
  if o.dtype and o.dtype ~= "f32" and o.dtype ~= "bf16" then
    fault.usage("bench: --dtype: expected f32 or bf16, got '%s'", o.dtype)
  end
  if o.model and not require("moonreel.bench.cuts").all[o.model] then
    fault.usage("bench: --model: expected stdit3 or mmdit, got '%s'", o.model)
  end
  local seconds = tonumber(o.seconds or 5)
  if not (seconds and seconds >= 0.01) then
    fault.usage("bench: --seconds: expected a number from 0.01 on, got '%s'", o.seconds)
  end
  local settings = {threads = o.threads or 0, dtype = o.dtype, seconds = seconds,
    shapes = o.shapes or 200,
    peer = o.peer ~= false, ops = o.ops, dir = o.dir, ranks = o.ranks, bytes = o.bytes,
    journal = o.journal,
    rows = o.rows, clips = o.clips, ffmpeg = o.ffmpeg, python = o.python, json = o.json,
    model = o.model, layer = o.layer, narrow = o.narrow,
    grad_checkpoint = o.grad_checkpoint}
  if o.dir and require("moonreel.core.base").exists(o.dir) then
    fault.usage("bench: --dir: %s is there already; expected a folder to make and remove", o.dir)
  end
  if o.layer and #require("moonreel.bench.conv").named(o.layer) == 0 then
    fault.usage("bench: --layer: no layer of conv has '%s' in its name; they are as in "
      .. "'hunyuan 3x3x3 / 1x2x2 128 to 128'", o.layer)
  end
  if o.save then
    if #parsed.positional > 0 or not o.save:match("[^/]+$") then
      fault.usage("bench: --save NAME measures what a machine file needs, and nothing else; got "
        .. "'%s'", #parsed.positional > 0 and parsed.positional[1] or o.save)
    end
    return save_machine(o.save, settings)
  end
  local has_peer = false
  for _, name in ipairs(names) do
    has_peer = has_peer or name:match("step$") ~= nil or name == "encoders" or name == "each"
      or name == "conv"
  end
  if settings.peer and has_peer then
    settings.python = require("moonreel.bench.peer").python(o.python)
    if o.python and not settings.python then
      fault.usage("bench: --python: '%s' does not run `import torch`", o.python)
    end
  end
  local all = {}
  for _, name in ipairs(names) do
    local result, show = runs[name](settings)
    if o.json then
      all[name] = plain(result)
    else
      show()
      io.stdout:flush()
    end
  end
  -- one measurement is the object itself, several are named
  if o.json then
    print(json.encode(#names == 1 and all[names[1]] or all))
  end
  return 0
end

return command
