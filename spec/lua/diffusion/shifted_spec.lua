--- The flow of Open-Sora 2.0. Reference values: make golden (timesteps, train_*).
-- Covers: lua/moonreel/diffusion/shifted.lua lua/moonreel/diffusion/flow.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local fails = require "spec.support.fails"
local flow = require "moonreel.diffusion.flow"
local nn = require "moonreel.nn"
local shift = require "moonreel.diffusion.shift"
local shifted = require "moonreel.diffusion.shifted"

local SIGMA <const> = 0.25

local function pipe_of(patch, dtype)
  return { dtype = dtype or "f32", model = { config = { patch_size = patch } } }
end

local size = { frames = 9, height = 64, width = 96, latent = { 4, 3, 48, 64 } }

-- value of each output of a loss on samples of one number, of weights 1 and 0.5
local function losses(x0, noise, t, pred, mask)
  local g = G.graph()
  local function input(value) return g:const(T.from({ 2, 1, 2, 1, 1 }, value)) end
  local loss, per_sample, seen = shifted.loss { x0 = input(x0), noise = input(noise),
    t = g:const(T.from({ 2 }, t)), weight = g:const(T.from({ 2 }, { 1, 0.5 })),
    mask = mask and g:const(T.from({ 2, 2 }, mask, "bool")), sigma_min = SIGMA,
    predict = function() return input(pred) end }
  g:output("loss", loss)
  g:output("per_sample", per_sample)
  g:output("x_t", seen.x_t)
  g:finish()
  local prog = E.new(E.device("cpu", 1), nil, {}):compile(g)
  prog:run()
  return prog:get("loss"):item(), prog:get("per_sample"):totable(), prog:get("x_t"):totable()
end

describe("the flow of 2.0", function()
  it("is found by its name; rectified flow is the default", function()
    assert.equal(shifted, flow.of "moonreel.diffusion.shifted")
    assert.equal(require "moonreel.diffusion.rflow", flow.of(nil))
  end)

  it("refuses fields about times of another flow", function()
    local function check(scheduler)
      shifted.check { scheduler = scheduler, model = { type = "flux" } }
    end
    check {}
    check { sample_method = "uniform", loc = 0, scale = 1, use_timestep_transform = false }
    for name, value in pairs { shift = 2, use_timestep_transform = true, scale = 2,
        sample_method = "logit-normal" } do
      fails("MR_E_RECIPE", ("scheduler%%.%s is %s: model%%.type = flux does not use it and draws "
        .. "its times from"):format(name, (tostring(value):gsub("%-", "%%-"))), check,
        { [name] = value })
    end
  end)

  it("draws uniform times for all sizes on request", function()
    local given, sum, most = { train_times = "uniform" }, 0, 0
    for key = 1, 400 do
      local t = shifted.draw(given, pipe_of(2), size, 7, key, 2)
      assert.equal(1000 * base.random_uniform(7, "t", key, 2), t)
      sum, most = sum + t, math.max(most, t)
    end
    assert.near(500, sum / 400, 45)
    assert.is_true(most > 950 and most < 1000)
    assert.equal(1000 * nn.round_bf16(base.random_uniform(7, "t", 5, 2)),
      shifted.draw(given, pipe_of(1, "bf16"), { latent = { 4, 1, 2, 2 } }, 7, 5, 2))
  end)

  it("draws a time for a sample that depends on the latent's size", function()
    local n = base.random_normal(7, "t", 11, 2)
    local function draw(given, patch, dtype)
      return shifted.draw(given, pipe_of(patch, dtype), size, 7, 11, 2)
    end
    local expected = shift.logit_normal(n, shift.alpha({ 3, 48, 64 }, 4))
    assert.near(1000 * expected, draw({}, 2), 1e-9)
    assert.near(1000 * nn.round_bf16(expected), draw({}, 2, "bf16"), 1e-9)
    assert.are_not.equal(1000 * expected, draw({}, 2, "bf16"))
    -- a patch of one cell has four times the tokens; the reference counts a quarter of them
    assert.near(1000 * shift.logit_normal(n, shift.alpha({ 3, 48, 64 }, 1)), draw({}, 1), 1e-9)
    assert.near(1000 * expected, draw({ compat = "opensora-2.0" }, 1), 1e-9)
    assert.are_not.equal(draw({}, 2), shifted.draw({}, pipe_of(2), size, 7, 12, 2))
  end)

  it("mixes with noise by time, with target (1 - sigma) noise - x0", function()
    local x0, noise, t = { 1, 2, -1, 3 }, { 0.5, -1, 2, 4 }, { 250, 1000 }
    local pred = { 0, 1, -1, 2 }
    local loss, per_sample, x_t = losses(x0, noise, t, pred)
    local sums = { 0, 0 }
    for i = 1, 4 do
      local b = (i + 1) // 2
      local u = t[b] / 1000
      assert.near((1 - u) * x0[i] + (u + SIGMA * (1 - u)) * noise[i], x_t[i], 1e-6)
      sums[b] = sums[b] + (pred[i] - ((1 - SIGMA) * noise[i] - x0[i])) ^ 2 / 2
    end
    assert.near(sums[1], per_sample[1], 1e-6)
    assert.near(sums[2], per_sample[2], 1e-6)
    assert.near(sums[1] + 0.5 * sums[2], loss, 1e-6)
  end)

  it("shifts times of a rendering by the size, by a factor, or not at all", function()
    local function times(patch, request)
      request.steps = 4
      return shifted.times({}, pipe_of(patch), size, request)
    end
    assert.same({ 1000, 750, 500, 250, 0 }, times(2, { shift = false }))
    local even = { 1, 0.75, 0.5, 0.25, 0 }
    for patch = 1, 2 do
      local alpha = shift.alpha({ 3, 48, 64 }, patch * patch)
      for i, t in ipairs(times(patch, { shift = true })) do
        assert.near(1000 * shift.of(even[i], alpha), t, 1e-9)
      end
    end
    assert.near(900, times(2, { shift = true, flow_shift = 3 })[2], 1e-4)
    assert.same({ 1000, 750, 500, 250, 0 }, times(2, { shift = false, flow_shift = 3 }))
  end)

  -- the last z of steps with a model that returns its text input; seen: rows of its inputs
  local function steps(copies, guided, takes_guidance)
    local g, seen = G.graph(), {}
    shifted.step(g, { dims = { 1, 1, 2, 1, 1 }, copies = copies, predict = function(z, t)
      assert.same({ copies, 1, 2, 1, 1 }, z.shape)
      local say = { 3, 3, 2, 2, 1, 1 }
      local v = z * 0 + g:const(T.from({ copies, 1, 2, 1, 1 }, table.move(say, 1, 2 * copies, 1,
        {})))
      g:output("asked", t)
      return takes_guidance
        and v + g:input("guidance", "f32", { copies }):reshape { copies, 1, 1, 1, 1 }
        :expand(z.shape) or v
    end })
    g:finish()
    local z = shifted.run(E.new(E.device("cpu", 1), nil, {}):compile(g), { z = T.from({ 1, 1, 2, 1,
      1 }, { 0, 10 }), times = { 1000, 600, 0 }, copies = copies, guided = guided,
      kind = "i2v_head", takes_guidance = takes_guidance, watch = function(i, prog)
        seen[i] = prog:get("asked"):totable()
      end })
    return z:totable(), seen
  end

  it("steps from noise to 0 by the guided velocity, all copies at the same time", function()
    local z, seen = steps(3, { guidance = 5, guidance_img = 4 })
    -- 1 + 4 (2 - 1) + 5 (3 - 2) over a time of -1
    assert.near(-10, z[1], 1e-5)
    assert.near(0, z[2], 1e-5)
    assert.same({ { 1000, 1000, 1000 }, { 600, 600, 600 } }, seen)
    -- the first frame has a scale of 1: 1 + (2 - 1) + 5, the last one of 4, then of 2.5
    z = steps(3, { guidance = 5, guidance_img = 4, scale_temporal_osci = true })
    assert.near(-7, z[1], 1e-5)
    assert.near(10 - 0.4 * 10 - 0.6 * 8.5, z[2], 1e-5)
    z = steps(2, { guidance = 5 })
    assert.near(-7, z[1], 1e-5)
    z = steps(1, { guidance = 5 })
    assert.near(-3, z[1], 1e-5)
    -- a model that has an input for guidance
    z = steps(1, { guidance = 5 }, true)
    assert.near(-8, z[1], 1e-5)
  end)

  it("leaves out frames that do not count", function()
    local x0, noise, pred = { 1, 2, -1, 3 }, { 0.5, -1, 2, 4 }, { 0, 1, -1, 2 }
    local _, per_sample = losses(x0, noise, { 250, 1000 }, pred, { 0, 1, 1, 1 })
    local function off(i) return (pred[i] - ((1 - SIGMA) * noise[i] - x0[i])) ^ 2 end
    assert.near(off(2), per_sample[1], 1e-6)
    assert.near((off(3) + off(4)) / 2, per_sample[2], 1e-6)
  end)
end)
