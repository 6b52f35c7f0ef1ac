--- The accuracy of predictions on this machine: rates come from steps of the same kind and other
-- sizes, and predictions are compared with measured steps. Steps of the trainer's own small models
-- are timed op by op. The predicted steps run in the same rounds, so that other load affects both.
-- In a round each step runs several times, and the fastest run counts: another user of a shared
-- machine can take a third of it for seconds, which slows some runs down and speeds none up.
-- @module moonreel.bench.plan
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local cuts = require "moonreel.bench.cuts"
local demo = require "moonreel.bench.demo"
local encoders = require "moonreel.bench.encoders"
local kl = require "moonreel.models.autoencoder_2d.kl"
local machine = require "moonreel.plan.machine"
local nn = require "moonreel.nn"
local paired = require "moonreel.bench.paired"
local rates = require "moonreel.plan.rates"
local step = require "moonreel.bench.step"
local temporal = require "moonreel.models.opensora_vae.temporal"
local work = require "moonreel.plan.work"

local plan = {}

plan.rounds = 5
plan.turns = 3     -- turns of each round
plan.least_s = 0.2  -- seconds of a turn: shorter steps are repeated
plan.within = 0.1  -- largest relative error of a prediction

local function stdit3(width, heads, depth, latent, text, channels)
  return { family = "stdit3", latent = latent, model = { depth = depth, hidden_size = width,
    num_heads = heads, model_max_length = text or 64, caption_channels = channels or 512 } }
end

local function training(frames, batch, ...)
  return { size = { frames = frames, height = 32, width = 32, batch = batch }, values = { ... } }
end

-- pictures and frames through the encoders of an autoencoder; widths are those of the released one
-- times `wide`, and each level has one block
local function clip(frames, height, width, wide)
  local widths = {}
  for i, channels in ipairs(kl.defaults.block_out_channels) do
    widths[i] = math.tointeger(channels * wide)
  end
  return { clip = { frames = frames, height = height, width = width, pictures = 2,
    spatial = nn.merged(kl.defaults, { block_out_channels = widths, layers_per_block = 1 }),
    temporal = nn.merged(temporal.defaults,
      { filters = math.tointeger(temporal.defaults.filters * wide), num_res_blocks = 1 }) } }
end

-- a block of a released T5 with captions of `tokens` tokens
local function block(name, captions, tokens) return { block = { name, captions, tokens } } end

--- What is predicted: whole steps of the demo, passes of STDiT3 including the fixed step, and
-- encoders.
function plan.predicted()
  return {
    { name = "demo, stills", of = training(1, 32) }, { name = "demo, clips", of = training(6, 8) },
    { name = "the fixed step", of = cuts.all.stdit3 },
    { name = "STDiT3 of width 384", of = stdit3(384, 6, 3, { 2, 4, 4, 16, 16 }) },
    { name = "STDiT3 of width 768", of = stdit3(768, 12, 1, { 1, 4, 8, 20, 20 }) },
    { name = "STDiT3 of width 1152", of = stdit3(1152, 16, 1, { 1, 4, 10, 20, 20 }) },
    { name = "video autoencoder", of = clip(9, 32, 48, 1) },
    { name = "a block of T5 large", of = block("t5-v1_1-large", 1, 144) },
  }
end

--- The steps that give the rates: smaller and larger than the predicted ones, and never of the same
-- size.
function plan.shown()
  return {
    training(8, 4, "model.hidden_size=64", "model.depth=2"),
    training(1, 24, "model.hidden_size=96", "model.depth=1"),
    training(5, 10, "model.hidden_size=160", "model.depth=1"),
    training(1, 40, "model.hidden_size=256", "model.depth=1"),
    stdit3(256, 4, 1, { 2, 4, 3, 12, 12 }, 48, 256),
    stdit3(512, 8, 1, { 2, 4, 6, 20, 20 }, 80, 384),
    stdit3(1024, 16, 1, { 1, 4, 9, 16, 16 }), stdit3(960, 12, 1, { 2, 4, 6, 24, 24 }),
    stdit3(1344, 16, 1, { 1, 4, 4, 20, 20 }, 96, 768),
    -- sizes of buckets are multiples of 16; half a tile of cells takes as long as a whole one
    clip(9, 32, 48, 0.5), clip(5, 48, 48, 1), clip(9, 48, 48, 0.75), clip(5, 32, 32, 1),
    block("t5-v1_1-base", 2, 96), block("t5-v1_1-base", 1, 176), block("t5-v1_1-large", 1, 96),
    -- with few tokens the time is that of reading weights, with many it is not; predicted sizes are
    -- between these
    block("t5-v1_1-large", 1, 192), block("t5-v1_1-xl", 1, 64),
  }
end

-- the programs that encode a clip, each run once
local function open_clip(device, size, dtype)
  local coder, programs = encoders.random_codec(device, dtype, size), {}
  coder:encode(T.new("u8", { size.frames, 3, size.height, size.width }))
  for i, row in ipairs(coder:encoders(size.frames, size.height, size.width)) do
    programs[i] = row.prog
  end
  return { exec = coder.part.exec, programs = programs, run = function()
    for _, prog in ipairs(programs) do
      prog:run()
    end
    coder.part.exec:sync()
  end }
end

-- prepares a step: programs, and run(), which has completed when it returns
local function open(device, of, dtype)
  if of.model then
    local exec, params, net = step.open(device, of, dtype)
    local one = step.compile(exec, params, net, of, { grad_checkpoint = false })
    return { exec = exec, programs = { one.prog }, run = one.run }
  elseif of.clip then
    return open_clip(device, of.clip, dtype)
  elseif of.block then
    local part, prog = encoders.random_block(device, dtype, table.unpack(of.block))
    return { exec = part.parts.block.exec, programs = { prog }, run = function()
      prog:run()
      part.parts.block.exec:sync()
    end }
  end
  local s = require("moonreel.settings").bake("recipes/tiny/demo.lua", of.values)
  local one = demo.open(device, s, of.size, dtype)
  return { exec = one.exec, programs = { one.micro.prog, one.update.prog }, run = function()
    one.run()
    one.exec:sync()
  end }
end

-- prepares all steps and runs each once, so that memory is allocated
local function open_all(device, list, dtype)
  local all = {}
  for i, of in ipairs(list) do
    all[i] = open(device, of, dtype)
    all[i].run()
  end
  return all
end

local function close_all(all)
  for _, one in ipairs(all) do
    one.exec:close()
  end
end

local function rows_of(one)
  local rows = {}
  for _, prog in ipairs(one.programs) do
    table.move(prog:times(), 1, #prog:times(), #rows + 1, rows)
  end
  return rows
end

local function seconds_of(run)
  local from = base.now_s()
  run()
  return base.now_s() - from
end

-- one turn of each step: `quickest` keeps the fastest run of all turns, {seconds, rows}
local function run_all(all, quickest)
  for i, one in ipairs(all) do
    local began = base.now_s()
    repeat
      local seconds = seconds_of(one.run)
      if not quickest[i] or seconds < quickest[i].seconds then
        quickest[i] = { seconds = seconds, rows = rows_of(one) }
      end
    until base.now_s() - began >= plan.least_s
  end
end

local function timed(all)
  for _, one in ipairs(all) do
    for _, prog in ipairs(one.programs) do
      prog:time(true)
    end
  end
end

-- the rows of all steps, and the seconds of a step outside its kernels
local function shows(quickest)
  local rows, around = {}, 0
  for _, one in ipairs(quickest) do
    around = around + one.seconds
    for _, row in ipairs(one.rows) do
      rows[#rows + 1], around = row, around - row.seconds
    end
  end
  return rows, math.max(around / #rows, 0)
end

-- this machine, with rates from one round
local function rated(m, quickest)
  local rows, around = shows(quickest)
  local copy = setmetatable({ ops = rates.points(rows) }, { __index = m })
  copy.rate = setmetatable({ step_s = around }, { __index = m.rate })
  return copy
end

--- Predicts and measures.
---@param options table  threads, dtype (nil: the device's best)
---@return table[] rows  {name, predicted_s, measured_s: medians over the rounds; off: the median of
---   predicted over measured, minus one; within}
function plan.measure(options)
  local device <close> = E.device("cpu", options.threads or 0)
  local dtype = options.dtype or device:facts().bf16 and "bf16" or "f32"
  local m, rows, predicted = machine.this(device), plan.predicted(), {}
  for i, row in ipairs(rows) do
    predicted[i] = row.of
  end
  local shown, run = open_all(device, plan.shown(), dtype), open_all(device, predicted, dtype)
  timed(shown)
  local said, took = {}, {}
  for round = 1, plan.rounds do
    local ran, showed = {}, {}
    for _ = 1, plan.turns do
      run_all(shown, showed)
      run_all(run, ran)
    end
    local now = rated(m, showed)
    for i, one in ipairs(ran) do
      local seconds = 0
      for _, row in ipairs(one.rows) do
        seconds = seconds + work.seconds(now, row, dtype, true)
      end
      said[i], took[i] = said[i] or {}, took[i] or {}
      said[i][round], took[i][round] = seconds, one.seconds
    end
  end
  for i, row in ipairs(rows) do
    row.predicted_s, row.measured_s = paired.median(said[i]), paired.median(took[i])
    row.off = paired.ratio(said[i], took[i]) - 1
    row.within, row.of = math.abs(row.off) <= plan.within, nil
  end
  close_all(shown)
  close_all(run)
  return rows, { isa = device:facts().isa, dtype = dtype, threads = device:facts().threads }
end

-- ---- a machine file ----

-- the fastest runs of all steps that give rates, with the same number of turns as a prediction
local function shown_once(device, dtype)
  local all, quickest = open_all(device, plan.shown(), dtype), {}
  timed(all)
  for _ = 1, plan.rounds do
    run_all(all, quickest)
  end
  close_all(all)
  return quickest
end

-- numbers, texts and tables in Lua syntax, with sorted keys
local function literal(value, indent)
  if type(value) ~= "table" then
    return type(value) == "number" and ("%.6g"):format(value) or ("%q"):format(value)
  end
  local keys, lines = {}, {}
  for key in pairs(value) do
    keys[#keys + 1] = key
  end
  if #value > 0 and type(value[1]) ~= "table" then
    for i, one in ipairs(value) do
      lines[i] = literal(one)
    end
    return "{ " .. table.concat(lines, ", ") .. " }"
  end
  table.sort(keys)
  for i, key in ipairs(keys) do
    local name = type(key) == "number" and "" or key:match("^[%a_][%w_]*$") and key .. " = "
      or ("[%q] = "):format(key)
    lines[i] = indent .. "  " .. name .. literal(value[key], indent .. "  ") .. ",\n"
  end
  return "{\n" .. table.concat(lines) .. indent .. "}"
end

--- This machine as a machine file: probed properties and measured steps.
---@param name string
---@param options table  threads, dtype (nil: f32, and bf16 if it is fast)
---@return string text
function plan.text(name, options)
  local device <close> = E.device("cpu", options.threads or 0)
  local m, rows, around = machine.this(device), {}, {}
  local dtypes = options.dtype and { options.dtype } or m.cpu.bf16 and { "f32", "bf16" }
    or { "f32" }
  for i, dtype in ipairs(dtypes) do
    local shown, seconds = shows(shown_once(device, dtype))
    table.move(shown, 1, #shown, #rows + 1, rows)
    around[i] = seconds
  end
  local cpu = m.cpu
  m.rate.step_s = paired.median(around)
  local file = { name = name, memory_bytes = m.memory_bytes, program_bytes = m.program_bytes,
    peak = m.peak, rate = m.rate, ops = rates.points(rows), cpu = { isa = cpu.isa,
      threads = cpu.threads, bf16 = cpu.bf16, amx = cpu.amx, bf16_by_f32 = cpu.bf16_by_f32 },
    source = ("moonreel bench --save, %s: %s, %d threads"):format(os.date("!%Y-%m-%d"), cpu.isa,
      cpu.threads) }
  return ("-- %s as measured; `moonreel plan RECIPE --machine ./FILE.lua`.\n"
    .. "-- ops: {operations, bytes, seconds} of steps by op and dtypes.\nreturn %s\n"):format(name,
    literal(file, ""))
end

return plan
