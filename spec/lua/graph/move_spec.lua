--- Values that wait in host memory for the backward pass, and copies between memories.
-- MOONREEL_DEVICE names the device.
-- Covers: core/graph/move.c
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local E = require "moonreel.core.exec"
local fails = require "spec.support.fails"
local ops = require "moonreel.core.op"
local run = require "spec.support.small_graph"

local device = os.getenv("MOONREEL_DEVICE") or "cpu"

describe("graph.move", function()
  it("computes the same bits from values that waited on the host, in less memory", function()
    for _, options in ipairs { {}, { no_cheap = true }, { no_inplace = true } } do
      for _, recompute in ipairs { false, true } do
        local plain, other = run(options, recompute), run(options, recompute, 1, false, true)
        assert.are.equal(plain.z, other.z)
        assert.are.same(plain.dx, other.dx)
        assert.are.same(plain.grad, other.grad)
        assert.equal(0, plain.pinned)
        -- h is [2, 3, 12] and y [2, 6, 4], f32, in granules of 64 bytes; each is copied out and
        -- back once
        assert.equal(320 + 192, other.pinned)
        local _, away = other.text:gsub("copy +%%%d+@host:", "")
        local _, back = other.text:gsub("copy +%%%d+@s[^\n]*<%- %%%d+@host:", "")
        assert.same({ 2, 2 }, { away, back })
      end
    end
    -- a chain of large values, each needed again: all but the current one wait on the host
    local peaks = {}
    for _, offload in ipairs { false, true } do
      local dev <close> = E.device(device, 1)
      local g <close> = G.graph(nil, { no_cheap = true })
      local x = g:input("x", "f32", { 4096 })
      local y = x
      for _ = 1, 8 do
        y = ops.silu(y)
        if offload then
          g:offload(y)
        end
      end
      local loss = ops.sum(y, { axes = { 0 } })
      g:output("dx", g:backward(loss, { x })[1])
      g:finish()
      local exec <close> = E.new(dev)
      peaks[#peaks + 1] = exec:compile(g):memory().arena
    end
    assert.is_true(peaks[2] <= 4 * 4096 * 4 and peaks[1] >= 8 * 4096 * 4,
      table.concat(peaks, " "))
  end)

  it("copies at most two values to host memory at a time", function()
    local g <close> = G.graph(nil, { no_cheap = true })
    local x = g:input("x", "f32", { 64 })
    local y = x
    for _ = 1, 4 do
      y = ops.silu(y)
      g:offload(y)
    end
    local loss = ops.sum(y, { axes = { 0 } })
    g:output("loss", loss)
    g:output("dx", g:backward(loss, { x })[1])
    g:finish()
    local steps = {}
    for queue, rest in g:schedule():gmatch "\n +%d+ (%S+)([^\n]*)" do
      steps[#steps + 1] = queue .. (rest:match "  waits for %d+" or "")
    end
    assert.same({
      "compute", "d2h  waits for 0", "compute", "d2h  waits for 2",
      -- compute continues when the copy before the newest is over
      "compute  waits for 1", "d2h  waits for 4", "compute  waits for 3", "compute  waits for 5",
      "compute", "compute", -- the gradient of the loss
      -- the first is copied back at once, others during the gradient that needs the one before
      "h2d  waits for 5", "compute  waits for 10", "h2d  waits for 9", "compute  waits for 12",
      "h2d  waits for 11", "compute  waits for 14", "compute",
      "d2h  waits for 7", "d2h  waits for 16", -- the outputs
    }, steps)
  end)

  it("copies the inputs of a block to host memory together", function()
    local g <close> = G.graph(nil, { no_cheap = true })
    local x = g:input("x", "f32", { 64 })
    local a, b = x, x
    for _ = 1, 2 do
      a, b = ops.silu(a), ops.silu(b)
      g:offload(a)
      g:offload(b)
    end
    g:output("dx", g:backward((ops.sum(ops.silu(a) + ops.silu(b), { axes = { 0 } })), { x })[1])
    local waits = {}
    for step, queue, rest in g:finish():schedule():gmatch "\n +(%d+) (%S+)([^\n]*)" do
      waits[#waits + 1] = queue == "compute" and rest:match "waits for %d+" and #waits < 2
        and step .. rest:match "  waits for %d+" or nil
    end
    -- 0, 1; copies 2, 3; 4, 5; copies 6, 7: 8 continues when both of the first are over
    assert.equal("8  waits for 3", waits[1])
  end)

  it("copies values between memories, also from views, and only copies read host memory", function()
    local dev <close> = E.device(device, 1)
    local g <close> = G.graph()
    local x = g:input("x", "f32", { 4, 6 })
    -- the copy has the layout of its source, also where a join could place it elsewhere
    local turned = ops.exp(x):permute { 1, 0 }
    local there = g:move(turned, "pinned")
    local back = g:move(there, "device")
    local joined = G.concat({ back, ops.silu(back) }, 1)
    g:output("y", ops.copy(joined))
    fails("MR_E_USAGE", "op 'exp': input 'x' is in host memory; try: move it back", ops.exp,
      there)
    fails("MR_E_USAGE", "output 'there' is in host memory", g.output, g, "there", there)
    fails("MR_E_USAGE", "is there already", g.move, g, back, "device")
    fails("MR_E_USAGE", "is there already", g.move, g, there, "pinned")
    fails("MR_E_USAGE", "is constant", g.offload, g, g:const(T.new("f32", { 4 })))
    fails("MR_E_USAGE", "a strided view in host memory", g.move, g, there:permute { 1, 0 },
      "device")
    g:finish()
    local exec <close> = E.new(dev, nil, { poison = true })
    local prog <close> = exec:compile(g)
    local given = T.new("f32", { 4, 6 }):fill_normal(1, "x")
    prog:set("x", given)
    prog:run()
    local want = given:clone()
    local got = prog:get("y")
    for i = 0, 3 do
      for k = 0, 5 do
        local e = math.exp(want[i .. ", " .. k])
        assert.is_near(e, got[k .. ", " .. i], 1e-5 * e)
        assert.is_near(e / (1 + math.exp(-e)), got[k .. ", " .. i + 4], 1e-5 * e)
      end
    end
  end)
end)
