local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local rflow = require "moonreel.diffusion.rflow"

describe("diffusion.rflow", function()
  it("draws logit-normal times that are a pure function of seed, key and epoch", function()
    local sum, config = 0, {sample_method = "logit-normal"}
    for key = 1, 4000 do
      local t = rflow.draw_t(config, 42, key, 3)
      assert.equal(t, rflow.draw_t(config, 42, key, 3))
      assert.is_true(t > 0 and t < 1000)
      sum = sum + t
    end
    assert.near(500, sum / 4000, 15)
    assert.are_not.equal(rflow.draw_t(config, 42, 1, 3), rflow.draw_t(config, 42, 1, 4))
  end)

  it("keeps times at a ratio of 1 and moves them towards noise above", function()
    assert.near(300, rflow.transform(300, 1), 1e-9)
    assert.near(2000 * 0.3 / 1.3, rflow.transform(300, 2), 1e-9)
    assert.near(1000, rflow.transform(1000, 5), 1e-9)
  end)

  it("counts latent frames as the reference does under compat only", function()
    local size = {height = 512, width = 512, frames = 6, latent_frames = 6}
    assert.near(6 ^ 0.5, rflow.ratio(size, {}), 1e-12)
    assert.equal(0, rflow.ratio(size, {compat = true}))
    size.frames = 51
    assert.near(15 ^ 0.5, rflow.ratio(size, {compat = true}), 1e-12)
  end)

  it("has the ratio that settings ask for; a bf16 run under compat rounds sizes", function()
    local scheduler = {use_timestep_transform = true, transform_scale = 0.5}
    local size = {height = 480, width = 854, frames = 51, latent_frames = 15}
    local function ratio(compat, dtype)
      local r, round = rflow.ratio_of({scheduler = scheduler, compat = compat}, dtype, size)
      assert.equal(compat ~= nil and dtype == "bf16", round ~= nil)
      return r
    end
    local exact = (480 * 854 / 512 ^ 2) ^ 0.5 * 15 ^ 0.5 * 0.5
    assert.near(exact, ratio(nil, "bf16"), 1e-12)
    assert.near(exact, ratio("opensora-1.2", "f32"), 1e-12)
    -- 480 x 856 is 411,648 in bf16, 1.570 of the square 1.5703125, its root 1.25; the root of 15 is
    -- 3.875, their product 4.84375
    assert.equal(4.84375 / 2, ratio("opensora-1.2", "bf16"))
    scheduler.shift = 2
    assert.equal(2, ratio(nil, "f32"))
    assert.is_nil((rflow.ratio_of({scheduler = {}}, "f32", size)))
  end)

  it("rounds the times of a schedule as it rounds a time", function()
    local function third(x) return math.floor(3 * x + 0.5) / 3 end
    for i, t in ipairs(rflow.schedule(4, 2.2, third)) do
      assert.equal(rflow.transform(1000 * (1 - (i - 1) / 4), 2.2, third), t)
    end
    assert.are_not.equal(rflow.schedule(4, 2.2, third)[2], rflow.schedule(4, 2.2)[2])
  end)

  it("decreases from pure noise", function()
    assert.same({1000, 750, 500, 250}, rflow.schedule(4))
  end)

  it("starts a frame when t falls to its strength, and adds noise to it once", function()
    local mask = {{1, 0.4, 0}}
    local noised = rflow.noised(mask)
    local add, active = rflow.frame_state(mask, {600}, noised)
    assert.same({0, 0, 0}, add)
    assert.same({1, 0, 0}, active)
    add, active = rflow.frame_state(mask, {400}, noised)
    assert.same({0, 1, 0}, add)
    assert.same({1, 1, 0}, active)
    add = rflow.frame_state(mask, {200}, noised)
    assert.same({0, 0, 0}, add)
  end)

  -- three steps from z = 1, with a model that predicts `cond` for the text and `null` without
  local function three_steps(guidance, cond, null)
    local g, seen = G.graph(), {}
    rflow.step(g, {dims = {2, 1, 1, 1, 1}, guidance = guidance,
      predict = function(x, _, _, copies)
        seen.copies = copies
        local list = copies == 2 and {cond, cond, null, null} or {cond, cond}
        return x * 0 + g:const(T.from({2 * copies, 1, 1, 1, 1}, list))
      end})
    g:finish()
    local prog = E.new(E.device("cpu", 1), nil, {}):compile(g)
    local z = rflow.run(prog, {z = T.from({2, 1, 1, 1, 1}, {1, 1}),
      times = {{1000, 1000}, {600, 700}, {100, 300}}})
    return z:totable(), seen.copies
  end

  it("moves by the guided velocity null + guidance x (text - null) over the whole time",
    function()
    local z, copies = three_steps(3, 0.5, 0.125)
    assert.equal(2, copies)
    assert.near(1 + 0.125 + 3 * (0.5 - 0.125), z[1], 1e-6)
    assert.near(z[1], z[2], 1e-6)
    z, copies = three_steps(1, 0.5, 0.125)
    assert.equal(1, copies)
    assert.near(1.5, z[1], 1e-6)
  end)
end)
