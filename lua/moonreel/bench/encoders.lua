--- The encoders of Open-Sora 1.2 at their released sizes: the video autoencoder with 17 frames of
-- 144p, a caption through T5 v1.1 XXL with blocks that are read from a file, and one block of T5.
-- Weights are random, or a sparse file if they are read. Each encoder runs in a separate process,
-- to measure its peak memory.
-- @module moonreel.bench.encoders
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local apart = require "moonreel.bench.apart"
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local encoder = require "moonreel.encoder"
local core = require "moonreel.core.bench"
local json = require "moonreel.core.json"
local kl = require "moonreel.models.autoencoder_2d.kl"
local network = require "moonreel.models.t5.network"
local nn = require "moonreel.nn"
local opensora_vae = require "moonreel.models.opensora_vae"
local paired = require "moonreel.bench.paired"
local sizes = require "moonreel.models.t5.sizes"
local source = require "moonreel.embed.source"
local step = require "moonreel.bench.step"
local t5 = require "moonreel.models.t5"
local temporal = require "moonreel.models.opensora_vae.temporal"
local temporary = require "moonreel.data.temporary"
local work = require "moonreel.plan.work"

local encoders = {}

--- The input of the autoencoder: its released sizes, 17 frames of 144p, 4 pictures at a time.
encoders.clip = {frames = 17, height = 144, width = 256, pictures = 4, spatial = kl.defaults,
  temporal = temporal.defaults}

local XXL = "t5-v1_1-xxl"
local TOKENS, PLACES = 20, 32  -- tokens of a caption, and computed positions
local BLOCK = {4, 300}         -- captions and tokens of the timed block

-- the targets
local PEAK_OVER_LAYER, CAPTION_BYTES, BLOCK_SHARE = 1.1, 3e9, 0.9
local SPEEDUP = {f32 = 1.3, bf16 = 3}

-- ---- the autoencoder, in a separate process

--- Makes an autoencoder with random weights.
---@param device mr.Device
---@param dtype string
---@param clip table  as encoders.clip
---@return mr.Codec    the caller closes it
function encoders.random_codec(device, dtype, clip)
  local auto = opensora_vae.new(nil, {micro_frame_size = clip.frames,
    micro_batch_size = clip.pictures})
  local params = G.params(dtype)
  auto:declare(nn.scope(params, "", {frozen = true}), {where = "the released sizes",
    spatial = clip.spatial, temporal = clip.temporal, scale = {3.85, 2.32, 2.33, 3.06},
    shift = {-0.10, 0.34, 0.27, 0.98}})
  params:seal()
  local exec = E.new(device, params, {})
  exec:init(1)
  local coder = codec.of(auto, params, exec)
  coder.encoder.own = true
  return coder
end

-- encodes a clip with a tiny autoencoder, so that threads and libraries have allocated their memory
local function warm_up(device, dtype)
  local clip = {frames = 5, height = 16, width = 16, pictures = 4,
    spatial = nn.merged(kl.defaults, {block_out_channels = {8, 8, 8, 8}, layers_per_block = 1,
      norm_num_groups = 4}),
    temporal = nn.merged(temporal.defaults, {filters = 8, num_res_blocks = 1, num_groups = 4})}
  local coder <close> = encoders.random_codec(device, dtype, clip)
  coder:decode(coder:encode(T.new("u8", {5, 3, 16, 16})), clip)
  return core.max_resident()
end

-- the bytes that the largest layer of some programs reads and writes, without its weights
local function largest_layer(rows)
  local most = 0
  for _, row in ipairs(rows) do
    for _, node in ipairs(row.prog:times()) do
      most = math.max(most, node.bytes)
    end
  end
  return most
end

-- the useful work of one run of a program that has run before, and its best time
local function timed(row, part_name, seconds)
  local start, best = base.now_s(), math.huge
  repeat
    local began = base.now_s()
    row.prog:run()
    local out <close> = row.prog:get "out"
    best = math.min(best, out and base.now_s() - began)
  until base.now_s() - start >= seconds
  return {part = part_name, flop = work.useful(row.prog:kinds()), runs = row.runs, seconds = best}
end

--- Measures one dtype of the autoencoder: the whole clip, and each program.
---@param dtype string
---@param threads integer
---@param seconds number  time per program
---@param clip table|nil   like encoders.clip
---@return table          encode, decode: {seconds, peak_bytes, layer_bytes}; weight_bytes; parts
function encoders.autoencoder(dtype, threads, seconds, clip)
  local size = clip or encoders.clip
  local device <close> = E.device("cpu", threads)
  local pixels = T.new("u8", {size.frames, 3, size.height, size.width})
  local before = warm_up(device, dtype)
  local coder <close> = encoders.random_codec(device, dtype, size)
  local answer = {weight_bytes = coder:weight_bytes(), parts = json.array{}}
  local z
  local function whole(name, rows, run)
    local began = base.now_s()
    run()
    answer[name] = {seconds = base.now_s() - began, peak_bytes = core.max_resident() - before,
      layer_bytes = largest_layer(rows)}
  end
  local forth = coder:encoders(size.frames, size.height, size.width)
  whole("encode", forth, function() z = coder:encode(pixels):clone() end)
  local back = coder:decoders(size.frames, size.height, size.width)
  whole("decode", back, function() coder:decode(z, size, function() end) end)
  -- for pictures, the programs of a full micro-batch
  for i, row in ipairs {forth[1], forth[#forth], back[1], back[2]} do
    answer.parts[i] = timed(row, encoders.parts[i], seconds)
  end
  return answer
end

--- Names of the programs for the peer.
encoders.parts = {"encode 4 pictures", "encode 17 frames", "decode 17 frames", "decode 4 pictures"}

-- ---- T5

--- Encodes a caption with the encoder of a folder, block by block from the file.
---@return table  seconds, peak_bytes, read_bytes, weight_bytes: bytes to read
function encoders.caption(folder, dtype, threads)
  local before = core.max_resident()
  local device <close> = E.device("cpu", threads)
  local text = t5.of_file(folder, {dtype = dtype})
  local files <close> = source.open(folder, text)
  local net <close> = encoder.new(text, {device = device, dtype = dtype, way = "stream",
    load = function(part, i) files:load(part, i) end})
  local ids = {}
  for i = 1, TOKENS do
    ids[i] = i
  end
  local group = {lists = {ids}, L = PLACES, counts = {TOKENS}}
  local values = text:values(files, group, dtype, {})
  local began, at = base.now_s(), files.bytes_read
  local shape = {n = 1, L = PLACES, dtype = dtype, lengths = true}
  net:run(text:calls("encode", shape, "stream"), values, {y = true},
    function(prog, output) prog:get(output) end)
  return {seconds = base.now_s() - began, peak_bytes = core.max_resident() - before,
    read_bytes = files.bytes_read - at, weight_bytes = 2 * sizes:elements(text.sizes)}
end

--- Makes a block with random weights, which has run once.
---@param device mr.Device
---@param dtype string
---@param name string  name of a released T5
---@param B integer    captions
---@param L integer    tokens of each caption
---@return mr.Encoder  the caller closes it
---@return mr.Program
function encoders.random_block(device, dtype, name, B, L)
  local s = sizes.of_name(name)
  local call = {part = "block", key = "", gives = {out = {"y", 0, B}},
    takes = {x = {"x", 0, dtype = dtype, shape = {B, 1, L, s.d_model}},
      bias = {"bias", 0, dtype = dtype, shape = {s.num_heads, L, L}}},
    nodes = function(g, block, io) return block:forward(g, io.x, io.bias) end}
  local block = {calls = function() return {call} end, parts = function()
    return {{name = "block", declare = function(params)
      return network.block(nn.scope(params, "block"), s)
    end}}
  end}
  local one = encoder.new(block, {device = device, dtype = dtype,
    load = function(part) part.exec:init(1) end})
  one:run(block.calls(), {x = T.new("f32", call.takes.x.shape):fill_normal(1, "x"):to(dtype),
    bias = T.new(dtype, call.takes.bias.shape)}, {}, function() end)
  return one, one:plan("encode", {})[1].prog
end

--- Measures a block with all of its tokens, alternating with the product peak.
---@param dtype string
---@param threads integer
---@param seconds number
---@param name string|nil    name of a released T5; absent: XXL
---@return table             part, flop, tflops, seconds, share: share of the product peak
function encoders.block(dtype, threads, seconds, name)
  local device <close> = E.device("cpu", threads)
  local one, prog = encoders.random_block(device, dtype, name or XXL, table.unpack(BLOCK))
  local flop = work.useful(prog:kinds())
  local peak, took = core.product_peak(dtype, threads, seconds / 50), 0
  local got = paired.rounds({function()
    return core.product_rate(dtype, threads, peak.m, peak.n, peak.k, math.min(took, 1))
  end, function()
    local began = base.now_s()
    prog:run()
    one.parts.block.exec:sync()
    took = base.now_s() - began
    return flop / took * 1e-12
  end}, seconds)
  one:close()
  local tflops = paired.median(got[2])
  return {part = "block of " .. (name or XXL), flop = flop, tflops = tflops,
    seconds = flop / tflops * 1e-12,
    share = paired.ratio(got[2], got[1])}
end

-- ---- all measurements

-- makes a folder for the time that f runs: config.json and tensor names over a sparse file
local function with_xxl(dir, f)
  local s, list = sizes.of_name(XXL), {}
  for i, row in ipairs(sizes:tensors(s)) do
    list[i] = {name = row.name, shape = row.shape, n = T.count(row.shape)}
  end
  local folder <close> = temporary.folder(dir)
  require("moonreel.bench.large").hole(folder.path .. "/model.safetensors", list)
  return f(folder.path)
end

-- compares a measurement with PyTorch and with the target of the ratio
local function compare(row, dtype, o, what)
  local clip = encoders.clip
  row.dtype, row.tflops = dtype, row.flop / row.seconds * 1e-12
  if o.python then
    local peer, reason = require("moonreel.bench.peer").run(o.python, what, {threads = o.threads,
      flop = row.flop, seconds = o.seconds, isa = o.isa, dtype = dtype, part = row.part,
      size = {clip.frames, clip.height, clip.width, clip.pictures}, block = BLOCK})
    row.peer, row.peer_missing = peer, reason
    row.speedup = peer and peer.seconds / row.seconds
  end
  return row
end

-- measures the autoencoder in one dtype
local function clips(dtype, o, tell)
  local one = apart("encoders", "autoencoder", dtype, o.threads, o.seconds)
  one.dtype = dtype
  for _, name in ipairs {"encode", "decode"} do
    local row = one[name]
    row.limit_bytes = one.weight_bytes + PEAK_OVER_LAYER * row.layer_bytes
  end
  tell("clip", one)
  for _, row in ipairs(one.parts) do
    compare(row, dtype, o, "vae")
    row.aim = SPEEDUP[dtype]
    tell("part", row)
  end
  return one
end

--- Measures.
---@param options table  threads, dtype (nil: each dtype that the device computes in), seconds,
---   python (nil: no peer), dir: for the sparse file
---@param tell fun(what: string, row: table)  called after each measurement, because all of them
---   take minutes: "machine", "clip", "part", "caption", "block"
---@return table         isa, threads; clips: by dtype; caption; blocks: by dtype, with step: the
---   share that `bench step` reaches
function encoders.measure(options, tell)
  local device <close> = E.device("cpu", options.threads or 0)
  local facts = device:facts()
  local o = setmetatable({threads = facts.threads, isa = facts.isa}, {__index = options})
  local dtypes = {options.dtype or "f32", not options.dtype and facts.bf16 and "bf16" or nil}
  local answer = {isa = facts.isa, threads = facts.threads, clips = {}, blocks = {}}
  tell("machine", answer)
  for i, dtype in ipairs(dtypes) do
    answer.clips[i] = clips(dtype, o, tell)
  end
  answer.caption = with_xxl(options.dir, function(folder)
    return apart("encoders", "caption", folder, dtypes[#dtypes], facts.threads)
  end)
  answer.caption.dtype, answer.caption.limit_bytes = dtypes[#dtypes], CAPTION_BYTES
  tell("caption", answer.caption)
  for i, dtype in ipairs(dtypes) do
    local row = compare(encoders.block(dtype, facts.threads, options.seconds), dtype, o, "t5-block")
    row.step_share = step.measure(setmetatable({dtype = dtype}, {__index = options})).ratio
    row.share_aim = BLOCK_SHARE
    answer.blocks[i] = row
    tell("part", row)
    tell("block", row)
  end
  return answer
end

return encoders
