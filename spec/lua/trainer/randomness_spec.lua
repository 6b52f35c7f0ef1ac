--- Random numbers of a sample, as the compiled micro-step gets them: noise, time and caption drop
-- depend on seed, epoch and sample alone, each by a random stream of its own.
-- Covers: lua/moonreel/diffusion/rflow.lua
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local regions = require "moonreel.optim.regions"
local feed = require "moonreel.trainer.feed"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local rflow = require "moonreel.diffusion.rflow"

local SAMPLES, DROP = 64, 0.5
local SHAPE = {frames = 1, height = 16, width = 16, batch = SAMPLES, text = 8, masked = false}

-- a micro-step that returns its random numbers and inputs in addition to the loss
local function open_step()
  local pipe = pipeline.new({vae = {type = "dct"},
    text_encoder = {type = "bytes", width = 16, rows = 16, max_length = 8, num_heads = 2},
    model = {type = "STDiT3", depth = 1, hidden_size = 16, num_heads = 2, patch_size = {1, 1, 1},
      pred_sigma = false}}, "f32")
  local loss, predict, noise = rflow.loss, pipe.predict, nil
  function rflow.loss(io)
    noise = io.noise
    return loss(io)
  end
  function pipe.predict(self, g, io)
    g:output("noise", noise)
    g:output("t", io.t)
    g:output("drop", io.drop)
    return predict(self, g, io)
  end
  local exec = E.new(E.device("cpu", 1), pipe.params, {regions = regions.adamw()})
  exec:init(1)
  local step = program.new(exec, pipe, SHAPE, {})
  rflow.loss = loss
  return step, pipe
end

local step, pipe = open_step()

-- keys from `first` on
local function keys_from(first)
  local keys = {}
  for b = 1, SAMPLES do
    keys[b] = first + b
  end
  return keys
end

-- what the micro-step draws: lists of noise (a text per sample), t, drop; `noise_values` flat
local function draw(change)
  local at = {seed = 5, epoch = 2, keys = keys_from(100), scheduler = {}}
  for k, v in pairs(change or {}) do
    at[k] = v
  end
  at.scheduler.sample_method = at.scheduler.sample_method or "logit-normal"
  local settings = {seed = at.seed, scheduler = at.scheduler, model = {class_dropout_prob = DROP}}
  local batch = {keys = at.keys, epoch = at.epoch, weights = {}, fps = {}, captions = {}}
  for b = 1, SAMPLES do
    batch.weights[b], batch.fps[b], batch.captions[b] = 1, 24, "caption"
  end
  local pixels = T.new("u8", {SAMPLES, 1, 3, 16, 16})
  function batch.pixels() return pixels:ptr() end
  step:run(feed.new(settings, pipe):prepare(batch, SHAPE))
  local noise = step.prog:get("noise")
  local drawn = {noise = {}, t = step.prog:get("t"):totable(),
    drop = step.prog:get("drop"):totable(), noise_values = noise:totable()}
  for b = 1, SAMPLES do
    drawn.noise[b] = noise:slice(0, b - 1, b):clone():bytes()
  end
  return drawn
end

-- number of samples for which two draws agree
local function agreements(a, b, name)
  local n = 0
  for i = 1, SAMPLES do
    n = n + (a[name][i] == b[name][i] and 1 or 0)
  end
  return n
end

-- the normal number behind a time of the logit-normal method
local function normal_of(t) return -math.log(1000 / t - 1) end

describe("the random numbers of a sample", function()
  it("are the same for the same seed, epoch and samples", function()
    assert.same(draw(), draw())
  end)

  it("depend on the seed, on the epoch and on the sample", function()
    local first = draw()
    for what, change in pairs{seed = {seed = 6}, epoch = {epoch = 3},
        sample = {keys = keys_from(1100)}} do
      local other = draw(change)
      assert.equal(0, agreements(first, other, "noise"), "noise, other " .. what)
      assert.equal(0, agreements(first, other, "t"), "t, other " .. what)
      -- two independent coins agree half of the time
      local same = agreements(first, other, "drop")
      assert.is_true(same > 12 and same < 52, ("drop, other %s: %d"):format(what, same))
    end
  end)

  it("do not depend on the place in the batch or on the other samples", function()
    local keys = keys_from(100)
    local first = draw()
    keys[1], keys[2], keys[40] = keys[2], keys[1], 7
    local moved = draw{keys = keys}
    for _, name in ipairs{"noise", "t", "drop"} do
      assert.equal(first[name][1], moved[name][2])
      assert.equal(first[name][2], moved[name][1])
      for b = 3, SAMPLES do
        assert.is_true(b == 40 or first[name][b] == moved[name][b], name)
      end
    end
    assert.are_not.equal(first.noise[40], moved.noise[40])
    assert.are_not.equal(first.t[40], moved.t[40])
  end)

  it("come from independent streams", function()
    local drawn = draw()
    local each = #drawn.noise_values // SAMPLES
    local coins = {t = 0, noise = 0, mask = 0}
    for b, key in ipairs(keys_from(100)) do
      local n = normal_of(drawn.t[b])
      for i = 1, each do
        assert.is_true(math.abs(drawn.noise_values[(b - 1) * each + i] - n) > 1e-6)
      end
      for purpose in pairs(coins) do
        local coin = base.random_uniform(5, purpose, key, 2) < DROP
        coins[purpose] = coins[purpose] + (coin == (drawn.drop[b] ~= 0 and drawn.drop[b] ~= false)
          and 1 or 0)
      end
    end
    for purpose, same in pairs(coins) do
      assert.is_true(same > 12 and same < 52, ("drop is drawn as %s"):format(purpose))
    end
  end)

  it("have the distribution of their name", function()
    local drawn, sum, squares, dropped = draw(), 0, 0, 0
    for _, v in ipairs(drawn.noise_values) do
      sum, squares = sum + v, squares + v * v
    end
    for b = 1, SAMPLES do
      dropped = dropped + (drawn.drop[b] ~= 0 and drawn.drop[b] ~= false and 1 or 0)
    end
    local n = #drawn.noise_values
    assert.near(0, sum / n, 0.05)
    assert.near(1, squares / n, 0.08)
    assert.near(SAMPLES * DROP, dropped, 16)
  end)

  it("use mean and deviation of the logit-normal times, and whole or uniform times", function()
    local plain = draw().t
    local moved = draw{scheduler = {loc = 0.5, scale = 2}}.t
    local uniform = draw{scheduler = {sample_method = "uniform"}}.t
    local whole = draw{scheduler = {sample_method = "uniform", use_discrete_timesteps = true}}.t
    for b = 1, SAMPLES do
      -- the time is f32: near its ends it determines only few digits of the normal number
      assert.near(0.5 + 2 * normal_of(plain[b]), normal_of(moved[b]), 1e-2)
      assert.equal(math.floor(uniform[b]), whole[b])
    end
  end)
end)
