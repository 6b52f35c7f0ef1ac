-- One micro-step: overfitting, recomputation, devices.
-- Covers: lua/moonreel/optim/init.lua
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local process = require "moonreel.core.process"
local regions = require "moonreel.optim.regions"
local program = require "moonreel.trainer.program"
local settings = require "moonreel.settings"

local fails = dofile "spec/support/fails.lua"

local SHAPE = {frames = 3, height = 16, width = 16, batch = 4, text = 24, masked = true}

local function new_pipe(linear)
  return pipeline.new({vae = {type = "dct"},
    text_encoder = {type = "bytes", width = 32, rows = 64, max_length = 24, num_heads = 2},
    model = {type = "STDiT3", depth = 1, hidden_size = 32, num_heads = 2, patch_size = {1, 1, 1},
      pred_sigma = false, temporal_pos = "sincos", linear = linear}}, "f32")
end

-- a fixed batch: the same pixels, noise and times in each call
local function new_batch(pipe)
  local n, values = 4 * 3 * 3 * 16 * 16, {}
  for i = 1, n do
    values[i] = math.floor(255 * base.random_uniform(5, "pixels", 0, 0, i))
  end
  return {pixels = T.from({4, 3, 3, 16, 16}, values, "u8"), keys = {11, 12, 13, 14},
    seed = 5, epoch = 0,
    t = {150, 400, 600, 850}, fps = {8, 8, 24, 24}, weight = {1, 1, 1, 1}, drop = {0, 0, 0, 1},
    mask = {1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0},
      tokens = pipe.text:tokens{"a red circle", "blue", "", "a green square going up"}}
end

local function gradient(device, config, linear)
  local pipe = new_pipe(linear)
  local run = E.new(device, pipe.params, {regions = regions.adamw()})
  run:init(3)
  local step = program.new(run, pipe, SHAPE, config)
  local loss = step:run(new_batch(pipe))
  return run:read("grad", "f32", 0, {pipe.params:elements(false)}):bytes(), loss
end

-- losses of the first and the last of `steps` updates with one batch
local function overfit(device, steps, linear)
  local pipe = new_pipe(linear)
  local run = E.new(device, pipe.params, {regions = regions.adamw()})
  run:init(3)
  local update = optim.new(run, pipe.params)
  local step, batch = program.new(run, pipe, SHAPE, {}), new_batch(pipe)
  local first, last
  for k = 1, steps do
    last = step:run(batch) / 4
    first = first or last
    -- a falling rate converges where a constant one oscillates
    update:step{lr = 4e-3 * (1 - k / (steps + 1)), beta1 = 0.9, beta2 = 0.99, eps = 1e-8,
      weight_decay = 0, max_norm = 1, step = k, grad_scale = 1 / 4}
  end
  return first, last
end

describe("trainer.program", function()
  it("is planned without a device with the bytes, cost and seconds of a device", function()
    local device = E.device()
    local rows = regions.adamw()
    for _, linear in ipairs{false, "f8"} do
      local pipe = new_pipe(linear or nil)
      local plans = E.plan(pipe.params, {regions = rows, rates = device, facts = device:facts()})
      local runs = E.new(device, pipe.params, {regions = rows})
      for _, config in ipairs{{}, {grad_checkpoint = true}} do
        local step = program.new(runs, pipe, SHAPE, config)
        assert.same(step.prog:plan(), plans:compile(step.graph):plan())
      end
    end
  end)

  it("overfits one batch with fixed noise and times to near zero", function()
    local first, last = overfit(E.device("cpu", 1), 600)
    assert.is_true(first > 1, "first loss " .. first)
    assert.is_true(last < 0.01, "last loss " .. last)
  end)

  it("learns with linear layers of 8 bits", function()
    local first, last = overfit(E.device("cpu", 1), 120, "f8")
    assert.is_true(first > 1, "first loss " .. first)
    -- f32 reaches 0.008 in as many steps
    assert.is_true(last < 0.03, "last loss " .. last)
    local device = E.device("cpu", 1)
    local plain = gradient(device, {}, "f8")
    assert.is_true(plain ~= gradient(device, {}))
    assert.is_true(plain == gradient(device, {grad_checkpoint = true}, "f8"))
    assert.is_true(plain == gradient(E.device("shadow", 1), {}, "f8"))
  end)

  it("computes the same gradient bits with recomputation of all or some blocks", function()
    local device = E.device("cpu", 1)
    local plain, loss = gradient(device, {})
    local all, loss_all = gradient(device, {grad_checkpoint = true})
    assert.equal(loss, loss_all)
    assert.is_true(plain == all)
    assert.is_true(plain == gradient(device, {grad_ckpt_settings = {1, 0}}))
  end)

  it("keeps inputs of blocks in host memory with the same bits and less device memory", function()
    local function run(device, pipe, shape, config)
      local exec <close> = E.new(device, pipe.params, {regions = regions.gradients()})
      local step = program.new(exec, pipe, shape, config)
      local memory, schedule = step.prog:memory(), step.prog:schedule()
      step:close()
      return memory, schedule
    end
    local config = {grad_checkpoint = true, offload = true}
    for _, name in ipairs{"cpu", "shadow"} do
      assert.is_true(gradient(E.device(name, 1), {}) == gradient(E.device(name, 1), config), name)
    end
    if base.exists((process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so"))) then
      local there = E.device("cudaemu", 1)
      assert.is_true(gradient(there, {grad_checkpoint = true}) == gradient(there, config))
    end
    -- a model of many blocks: the inputs of two are on the device at a time, the others on the host
    local s = settings.bake("tiny/demo", {"model.depth=6"})
    local pipe = pipeline.of(s, "f32")
    local shape = {frames = 6, height = 32, width = 32, batch = 4, text = 56}
    local plain = run(E.device("cpu", 1), pipe, shape, {grad_checkpoint = true})
    local memory, schedule = run(E.device("cpu", 1), pipe, shape, config)
    local input = 4 * 6 * 16 * 128 * 4
    assert.equal(0, plain.pinned)
    assert.equal(12 * input, memory.pinned)
    -- attention's results stay on the device
    assert.is_true(plain.arena - memory.arena > 7 * input, plain.arena .. " " .. memory.arena)
    assert.matches("d2h +copy", schedule)
    assert.matches("h2d +copy", schedule)
    -- inputs of blocks without recomputation stay on the device, as do forward passes
    memory = run(E.device("cpu", 1), pipe, shape, {grad_ckpt_settings = {2, 1}, offload = true})
    assert.equal(3 * input, memory.pinned)
    memory = run(E.device("cpu", 1), pipe, shape,
      {grad_checkpoint = true, offload = true, forward = true})
    assert.equal(0, memory.pinned)
    -- a plan counts the same
    local plans <close> = E.plan(pipe.params, {regions = regions.gradients(),
      facts = E.device("cpu", 1):facts()})
    local planned <close> = plans:compile(program.graph(pipe, shape, config))
    assert.equal(12 * input, planned:memory().pinned)
  end)

  it("refuses a buffer that is one byte smaller than the inputs of blocks", function()
    local function check(bytes)
      return program.check_buffer, settings.bake("tiny/demo",
        {"grad_checkpoint=true", "grad_ckpt_buffer_size=" .. bytes}), "32px 6x32x32 of 8",
        {pinned = 5000}
    end
    fails("MR_E_RECIPE", "grad_ckpt_buffer_size = 4999: blocks of bucket 32px 6x32x32 of 8 that "
      .. "recompute keep 5000 bytes of inputs in host memory; try: grad_ckpt_buffer_size = 5000",
      check(4999))
    local f, s, bucket, memory = check(5000)
    f(s, bucket, memory)
    f(settings.bake "tiny/demo", bucket, memory)
  end)

  it("computes the first blocks of each kind twice", function()
    local _, recompute = program.recomputation { grad_ckpt_settings = { 1, 2 } }
    local twice = {}
    for kind = 1, 2 do
      for i = 0, 2 do
        twice[#twice + 1] = recompute(kind, i)
      end
    end
    assert.same({ true, false, false, true, true, false }, twice)
  end)

  it("computes the same gradient bits on the shadow device", function()
    assert.is_true(gradient(E.device("cpu", 1), {}) == gradient(E.device("shadow", 1), {}))
  end)

  it(
    "computes the same weights, moments and averages of a demo step on the shadow device",
    function()
    local s = settings.bake("tiny/demo")
    local function step_on(name)
      local pipe = pipeline.new({model = s:plain("model"), vae = s:plain("vae"),
        text_encoder = s:plain("text_encoder")}, "f32")
      local run = E.new(E.device(name, 1), pipe.params, {regions = regions.adamw{ema = true}})
      run:init(s.seed)
      local update = optim.new(run, pipe.params)
      local step = program.new(run, pipe,
        {frames = 6, height = 32, width = 32, batch = 2, text = 56}, {})
      -- the layout is within 5 % of the largest sum of tensors that are alive at once
      local memory = step.prog:memory()
      assert.is_true(memory.arena <= 1.05 * memory.bound)
      local values = {}
      for i = 1, 2 * 6 * 3 * 32 * 32 do
        values[i] = i * 7919 % 256
      end
      step:run{pixels = T.from({2, 6, 3, 32, 32}, values, "u8"), keys = {1, 2},
        seed = s.seed, epoch = 0, t = {300, 700}, fps = {8, 8},
        weight = {1, 1}, drop = {0, 1}, tokens = pipe.text:tokens{"a red circle moving left on "
          .. "black", "blue square"}}
      update:step{lr = 2e-3, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.01,
        max_norm = 1, ema_decay = 0.99, step = 1, grad_scale = 0.5}
      local all = {}
      for i, region in ipairs{"master", "adam_m", "adam_v", "ema"} do
        all[i] = run:read(region, "f32", 0, {pipe.params:elements(false)}):bytes()
      end
      return table.concat(all)
    end
    assert.is_true(step_on("cpu") == step_on("shadow"))
  end)

  it("returns the key of a shape", function()
    assert.equal("3x16x16 b4 l24 mask", program.key(SHAPE))
  end)
end)
