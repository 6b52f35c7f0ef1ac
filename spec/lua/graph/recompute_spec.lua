--- Blocks that repeat their ops in the backward pass.
-- MOONREEL_DEVICE names the device.
-- Covers: core/graph/recompute.c
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local E = require "moonreel.core.exec"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"
local run = require "spec.support.small_graph"

local device = os.getenv("MOONREEL_DEVICE") or "cpu"

describe("graph.recompute", function()
  it("computes the same bits from gathered weights, gathered again in repeated blocks", function()
    local plain = run({}, false)
    for _, recompute in ipairs { false, true } do
      local other = run({}, recompute, 1, true)
      assert.are.equal(plain.z, other.z)
      assert.are.same(plain.dx, other.dx)
      assert.are.same(plain.grad, other.grad)
      local _, copies = other.text:gsub("\n +%d+ copy ", "")
      local _, again = other.text:gsub("\n +%d+ copy [^\n]*recompute_of", "")
      assert.is_true(copies >= 5 and (again > 0) == recompute)
    end
  end)

  it("keeps only the saved part of a join that is repeated", function()
    local ROWS, WIDTH, BLOCKS = 512, 16, 6
    -- each block joins `kept` with four times as much that it repeats
    local function measured(recompute, save)
      local dev <close> = E.device(device, 1)
      local params <close> = G.params("f32")
      for i = 1, BLOCKS do
        params:add { name = "w" .. i, shape = { WIDTH, 5 * WIDTH }, init = { kind = "xavier" } }
      end
      params:seal()
      local g <close> = G.graph(params, { no_cheap = not recompute })
      local x = g:input("x", "f32", { ROWS, WIDTH })
      local y = x
      for i = 1, BLOCKS do
        y = g:block("b" .. i, recompute, function()
          local kept = ops.exp(ops.affine(y, { scale = -0.5 }))
          if save then
            g:save(kept)
          end
          local wide = ops.silu(G.concat({ y, kept * y, y, y }, 1))
          return ops.linear(G.concat({ kept, wide }, 1), g:param("w" .. i))
        end)
      end
      local loss = ops.sum(y * y, { axes = { 0, 1 } })
      g:output("loss", loss)
      g:output("dx", g:backward(loss, { x })[1])
      g:finish()
      local exec <close> = E.new(dev, params, { regions = regions.adamw(), poison = true })
      exec:init(7)
      local prog <close> = exec:compile(g)
      prog:set("x", T.new("f32", { ROWS, WIDTH }):fill_normal(1, "x"))
      prog:run()
      return { loss = prog:get("loss"):item(), dx = prog:get("dx"):bytes(),
        grad = exec:read("grad", "f32", 0, { params:elements() }):bytes(),
        arena = prog:memory().arena }
    end
    local whole, again, saved = measured(false), measured(true), measured(true, true)
    for _, other in ipairs { again, saved } do
      assert.same({ whole.loss, whole.dx, whole.grad }, { other.loss, other.dx, other.grad })
    end
    local part = ROWS * WIDTH * 4
    -- six parts of each block at least; a device may need workspaces, too
    assert.is_true(again.arena + BLOCKS * 6 * part <= whole.arena)
    -- one part of five of each block, and no more
    assert.is_true(saved.arena <= again.arena + BLOCKS * part,
      ("%d, then %d"):format(again.arena, saved.arena))
  end)

  it("computes the same bits with and without recomputation, in-place ops and cheap ops", function()
    local plain = run({ no_inplace = true, no_cheap = true }, false)
    for _, case in ipairs { { { no_cheap = true }, false }, { {}, false },
        { {}, true }, { { no_inplace = true }, true } } do
      local other = run(case[1], case[2])
      assert.are.equal(plain.loss, other.loss)
      assert.are.equal(plain.z, other.z)
      assert.are.same(plain.dx, other.dx)
      assert.are.same(plain.grad, other.grad)
    end
    assert.matches("recompute_of", run({}, true).text)
    assert.is_nil(plain.text:match("recompute_of"))
  end)

  it("repeats ops inside a block, and keeps values that leave it or are marked", function()
    local function repeated(mark, no_save)
      local params <close> = G.params("f32")
      params:add { name = "w", shape = { 4, 4 }, init = { kind = "xavier" } }
      params:seal()
      local g <close> = G.graph(params, { no_cheap = true, no_save = no_save })
      local x = g:input("x", "f32", { 3, 4 })
      for b = 1, 2 do
        x = g:block("block" .. b, true, function()
          local h = ops.linear(x, g:param "w")
          if mark then
            g:save(h)
          end
          return ops.mul(ops.gelu_tanh(h), h)
        end)
      end
      local loss = ops.sum(ops.mul(x, x), { axes = { 0, 1 } })
      g:output("loss", loss)
      g:backward(loss)
      g:finish()
      local ops_of = {}
      for op in g:print():gmatch "%d+ (%a[%w_]*) +%%[^\n]*recompute_of" do
        ops_of[#ops_of + 1] = op
      end
      table.sort(ops_of)
      return ops_of
    end
    assert.are.same({ "gelu_tanh", "gelu_tanh", "linear", "linear" }, repeated(false))
    assert.are.same({ "gelu_tanh", "gelu_tanh" }, repeated(true))
    assert.are.same(repeated(false), repeated(true, true))
  end)
end)
