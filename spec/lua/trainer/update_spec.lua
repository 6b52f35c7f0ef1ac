--- Two optimizer steps of a run, compared with an oracle in plain Lua doubles: gradients of each
-- micro-batch, their weighted mean, clip, AdamW, average of weights, learning rates.
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local demo_data = dofile "spec/support/demo_data.lua"
local regions = require "moonreel.optim.regions"
local program = require "moonreel.trainer.program"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

-- No number is a default or without effect: the norm is clipped, eps is of the size of the
-- gradients.
local LR, BETA1, BETA2, EPS, DECAY, CLIP, EMA = 3e-3, 0.8, 0.95, 1e-4, 0.2, 0.05, 0.7
local WARMUP, ACCUMULATE, STEPS = 3, 2, 2
local SAMPLE_WEIGHTS = {1, 0, 0.5, 2}

local out = demo_data.scratch()

local function bake(dtype)
  return settings.bake("tiny/demo", {"dataset.data_path=" .. demo_data.path(),
    "outputs=" .. out, "dtype=" .. dtype, "threads=1", "num_workers=1", "optim.type=adamw",
    "steps=" .. STEPS, "lr_schedule=constant",
    "warmup_steps=" .. WARMUP, "accumulate=" .. ACCUMULATE, "optim.lr=" .. LR,
    "optim.eps=" .. EPS, ("optim.betas=[%g, %g]"):format(BETA1, BETA2),
    "optim.weight_decay=" .. DECAY, "optim.grad_clip=" .. CLIP, "optim.ema_decay=" .. EMA,
    "model.depth=1", "model.hidden_size=16", "model.num_heads=2", "model.caption_channels=16",
    "text_encoder.width=16", "text_encoder.num_heads=2", "text_encoder.rows=64"})
end

-- the trained state as lists of numbers
local function state_of(r)
  local state, n = {}, {r.pipe.params:elements(false)}
  for _, region in ipairs{"master", "adam_m", "adam_v", "ema"} do
    state[region] = r.exec:read(region, "f32", 0, n):totable()
  end
  state.w = r.exec:read("w", r.dtype, 0, n)
  return state
end

-- the gradient of one micro-batch, by an executor of its own
local function gradient(r, batch)
  local trained = {r.pipe.params:elements(false)}
  local exec <close> = E.new(r.device, r.pipe.params, {regions = regions.gradients()})
  exec:write("w", 0, r.exec:read("w", r.dtype, 0, trained))
  exec:write("frozen", 0, r.exec:read("frozen", r.dtype, 0, {r.pipe.params:elements(true)}))
  program.new(exec, r.pipe, batch.shape, {}):run(batch.input)
  return exec:read("grad", "f32", 0, trained):totable()
end

-- The updates of a run: the micro-batches of each, its gradient norm and learning rate, and the
-- state before and after.
local function watch(dtype)
  local updates = {}
  local function put_between(r)
    local batches, count = {}, 0
    local prepare, start = r.feed.prepare, r.update.start
    function r.feed.prepare(...)
      local input = prepare(...)
      for b = 1, #input.weight do
        count = count + 1
        input.weight[b] = SAMPLE_WEIGHTS[count % #SAMPLE_WEIGHTS + 1]
      end
      -- the loader reuses its pixels after the micro-step
      batches[#batches + 1] = {shape = select(3, ...),
        input = setmetatable({pixels = input.pixels:clone()}, {__index = input})}
      return input
    end
    function r.update.start(self, h)
      local update = {before = state_of(r), gradients = {}, weight = 0}
      for i, batch in ipairs(batches) do
        update.gradients[i] = gradient(r, batch)
        for _, w in ipairs(batch.input.weight) do
          update.weight = update.weight + w
        end
      end
      batches = {}
      update.norm = start(self, h)()
      update.after = state_of(r)
      updates[#updates + 1] = update
      return function() return update.norm end
    end
  end
  table.insert(trainer.steps, #trainer.steps, {"spec", put_between})
  local ok, code = pcall(trainer.run, bake(dtype), {write = function() end})
  table.remove(trainer.steps, #trainer.steps - 1)
  assert.is_true(ok, tostring(code))
  return updates
end

-- the state after update k (from 0), and the gradient norm before the clip
local function oracle(update, k)
  local n, g, squares = #update.before.master, {}, 0
  for i = 1, n do
    local sum = 0
    for _, one in ipairs(update.gradients) do
      sum = sum + one[i]
    end
    g[i] = sum / update.weight
    squares = squares + g[i] * g[i]
  end
  local norm, lr = squares ^ 0.5, LR * (k + 1) / (WARMUP + 1)
  local q = math.max((norm + 1e-6) / CLIP, 1)
  local old, new = update.before, {master = {}, adam_m = {}, adam_v = {}, ema = {}}
  for i = 1, n do
    local m = BETA1 * old.adam_m[i] + (1 - BETA1) * g[i] / q
    local v = BETA2 * old.adam_v[i] + (1 - BETA2) * (g[i] / q) ^ 2
    local p = old.master[i]
    p = p - lr * ((m / (1 - BETA1 ^ (k + 1))) / ((v / (1 - BETA2 ^ (k + 1))) ^ 0.5 + EPS)
      + DECAY * p)
    new.master[i], new.adam_m[i], new.adam_v[i] = p, m, v
    new.ema[i] = EMA * old.ema[i] + (1 - EMA) * p
  end
  return new, norm
end

-- the error, in units of the update's size
local function error_of(got, want, before)
  local wrong, moved = 0, 0
  for i = 1, #want do
    wrong, moved = wrong + (got[i] - want[i]) ^ 2, moved + (want[i] - before[i]) ^ 2
  end
  return (wrong / moved) ^ 0.5
end

describe("the update of a run", function()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  for _, dtype in ipairs{"fp32", "bf16"} do
    it("equals the oracle's for each number of micro-batches (accumulate): " .. dtype,
      function()
      local updates = watch(dtype)
      assert.equal(STEPS, #updates)
      for k, update in ipairs(updates) do
        assert.equal(ACCUMULATE, #update.gradients)
        local want, norm = oracle(update, k - 1)
        assert.is_true(norm > 2 * CLIP, "nothing is clipped: " .. norm)
        assert.near(1, update.norm / norm, 1e-5)
        for region, list in pairs(want) do
          -- f32 stores a parameter of 0.1 to 1e-8; an update changes it by 1e-3
          local err = error_of(update.after[region], list, update.before[region])
          assert.is_true(err < 1e-4, ("update %d, %s: %g"):format(k, region, err))
        end
        -- the model computes with the rounded parameter
        local w = update.after.w
        local rounded = T.from(w.shape, update.after.master):to(w.dtype)
        assert.is_true(w:bytes() == rounded:bytes())
      end
    end)
  end
end)
