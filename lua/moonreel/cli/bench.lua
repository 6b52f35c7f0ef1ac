--- `moonreel bench`: speed and memory of this machine, compared with its own limits and PyTorch.
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
    {"step", "forward and backward pass of a few blocks of a released model, with and without "
      .. "grad_checkpoint, as the trainer builds it: TFLOP/s, share of the product peak, memory; "
      .. "PyTorch's in turn"},
    {"demo-step", "a whole training step of recipes/tiny/demo.lua: tokens per second"},
    {"weights", "share of the demo's time that weights.every takes, with its target"},
    {"follow", "a step of the demo with both trackers, weights.every and hosts.every, in turn with "
      .. "the same step without them, with its target"},
    {"muon", "a step of the demo with optim.type = muon, in turn with adamw, with its target"},
    {"kernels", "single ops at the sizes of `step`"},
    {"conv", "convolutions of the video autoencoders in f32 and bf16, with the operations and "
      .. "bytes of each, compared with the product peak and PyTorch, channels last"},
    {"each", "step and demo-step on every instruction set from AVX2 on and in every dtype that is "
      .. "fast there, each in a separate process, compared with PyTorch under the same limits: "
      .. "seconds, share of the peak, memory, and the target of each"},
    {"packing", "time for packing weights in the products of models: the most that a step or a "
      .. "rendering would gain if weights were kept packed"},
    {"graph", "time to build a step before it runs: milliseconds and microseconds per node of "
      .. "forward, backward, finish and compile at three depths"},
    {"save", "cost of a checkpoint: the stall of a save compared with a plain copy of the state, "
      .. "and verifying one compared with reading it"},
    {"cli", "time until a command answers: bake, prompt, show, a large checkpoint from a cold "
      .. "cache, plans of large runs; each with its target"},
    {"encoders", "the video autoencoder and T5 XXL of Open-Sora 1.2 at their released sizes: 17 "
      .. "frames of 144p and a caption, seconds and peak memory compared with PyTorch; takes "
      .. "minutes"},
    {"vae", "a video autoencoder at its released sizes: a clip encoded and decoded, seconds, peak "
      .. "memory and what was planned; Hunyuan's in turn with diffusers (which has no class for "
      .. "clips through DC-AE), three pairs at least; takes minutes"},
    {"--autoencoder TYPE", "vae: hunyuan_vae (default) or dc_ae"},
    {"--clip FxHxW", "vae: frames, height and width (default 17x144x256)"},
    {"--narrow N", "vae: divide the widths of all levels by N, on both sides (default "
      .. "1)", least = 1},
    {"comm", "communication between ranks: microseconds and GB/s by size, over shared memory, over "
      .. "TCP (plain, sealed and encrypted) and over MPI, compared with MPI's own calls"},
    {"ranks", "a step of the demo by ranks of one thread each, compared with the same work by one "
      .. "rank: the overhead of ranks and of their communication, in wall time and in processor "
      .. "seconds"},
    {"data", "cost of data before it is trained on, each line with its target: building an index, "
      .. "decoding and scanning, memory, torn samples, and `order`; the same clips through other "
      .. "readers"},
    {"order", "planning an epoch of synthetic rows with opensora-1.2/stage2, finding its samples, "
      .. "looking up rows, each line with its target"},
    {"plan", "seconds predicted from rates of other shapes, compared with measurements of the same "
      .. "run: the demo's steps, the fixed step and three sizes of STDiT3"},
    {"shapes", "buckets of Open-Sora 1.2, planned one after another as a run compiles them: the "
      .. "number that fits into programs_bytes, and the time of each"},
    {"--save NAME", "write rates of this machine, by op and size, to NAME.lua, a machine for "
      .. "`moonreel plan --machine ./NAME.lua`; nothing else is measured"},
    {"--rows N", "data, order: rows of the index that is built (default 1000000); order plans a "
      .. "hundred times as many", least = 1000},
    {"--clips N", "data: clips that one worker decodes to measure its memory (default "
      .. "1500)", least = 30},
    {"--ffmpeg FILE", "data: the ffmpeg tool to compare with (default: ffmpeg)"},
    {"--layer TEXT", "conv: only layers whose printed name contains TEXT"},
    {"--shapes N", "shapes: number of shapes (default 200)", least = 1},
    {"--journal N", "follow: a resumed run with a journal of N steps, in turn with a new "
      .. "one", least = 20},
    {"--ranks N", "comm, ranks: number of ranks (default 2)", least = 2},
    {"--bytes N", "comm: size of a large message (default 16 MiB)", least = 4},
    {"--threads N", "team size (default: all cores)", least = 1},
    {"--dtype TYPE", "f32 or bf16 (default: bf16 if the processor supports it; demo-step: the "
      .. "recipe's)"},
    {"--seconds S", "time to spend per measurement (default 5); cli: at most 7 starts"},
    {"--peer", "run the same in PyTorch if it is installed (default; --no-peer skips it)"},
    {"--python FILE", "interpreter whose PyTorch is the peer (default: python3); each step first "
      .. "runs as it is and with torch.compile, in 400 s, then five rounds get 90 s each"},
    {"--grad-checkpoint", "step: compare with PyTorch where both recompute blocks, as Open-Sora "
      .. "1.2 trains; without it both keep all activations"},
    {"--model NAME", "step: stdit3, two pairs of blocks of width 1152 (default), or mmdit, two "
      .. "double and four single blocks of width 1024"},
    {"--ops", "time per op of the step"},
    {"--dir DIR", "save, encoders: a new folder for files (default: one in /tmp)"},
    {"--json", "one JSON object"},
  },
  details = "Without a name the first three run, one after another. `step` and `kernels` alternate "
    .. "between the measurement and its limit and report medians; other rates are those of the "
    .. "best run. The product peak is the best packed product of a fixed list of shapes, with the "
    .. "same dtype and threads.",
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

-- makes strings, numbers and tables of them fit for JSON
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

-- Parses words like 17x144x256 into frames, height and width; nil gives nil.
local function clip_of(words, fault)
  local frames, height, width = (words or ""):match "^([1-9]%d*)x([1-9]%d*)x([1-9]%d*)$"
  if words and not frames then
    fault.usage("bench: --clip: expected FRAMESxHEIGHTxWIDTH, as 17x144x256, got '%s'", words)
  end
  return words and {frames = math.tointeger(frames), height = math.tointeger(height),
    width = math.tointeger(width)}
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
  local types = require("moonreel.bench.vae").types
  if o.autoencoder and not table.concat(types, " "):find(o.autoencoder, 1, true) then
    fault.usage("bench: --autoencoder: expected %s, got '%s'", table.concat(types, " or "),
      o.autoencoder)
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
    model = o.model, layer = o.layer, narrow = o.narrow, type = o.autoencoder,
    clip = clip_of(o.clip, fault),
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
      fault.usage("bench: --save NAME measures all that a machine file needs, so no measurement "
        .. "can be named; got '%s'", #parsed.positional > 0 and parsed.positional[1] or o.save)
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
  -- JSON of one measurement is that object itself; several are named
  if o.json then
    print(json.encode(#names == 1 and all[names[1]] or all))
  end
  return 0
end

return command
