--- Attention with large scores in bf16 has finite results near those of f32.
-- Covers: core/op/attention_amx.c
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local process = require "moonreel.core.process"

-- some keys of a tile do not exist
local B <const>, N <const>, M <const>, HEADS <const>, D <const> = 3, 40, 56, 2, 16
local NAMES <const> = { "o", "lse", "dq", "dk", "dv" }
-- Relative to the largest element. When one key has all the weight, gradients of scores are the
-- rounding error of a difference in bf16.
local OFF <const> = { o = 0.02, lse = 0.02, dq = 2, dk = 2, dv = 0.02 }

local function normal(shape, seed, scale)
  local list = T.new("f32", shape):fill_normal(seed, "attention"):totable()
  for i, x in ipairs(list) do
    list[i] = x * scale
  end
  -- f32 gets the same values
  return T.from(shape, T.from(shape, list, "bf16"):totable(), "f32")
end

-- outputs of attention and its gradient by name; queries and keys have this size
local function results(device, dtype, scale)
  local params = G.params(dtype)
  params:add { name = "unused", shape = { 1 }, init = { kind = "zeros" } }
  params:seal()
  local run <close> = E.new(device, params, {})
  local g, given = G.graph(params), { q = normal({ B, 1, N, HEADS, D }, 1, scale),
    k = normal({ B, 1, M, HEADS, D }, 2, scale), v = normal({ B, 1, M, HEADS, D }, 3, 1),
    dy = normal({ B, 1, N, HEADS, D }, 4, 1) }
  local x = { len = g:input("len", "i32", { B }) }
  for _, name in ipairs { "q", "k", "v", "dy" } do
    x[name] = g:input(name, dtype, given[name].shape)
  end
  x.o, x.lse = ops.attention(x.q, x.k, x.v, x.len, nil, { scale = 0.25 })
  x.dq, x.dk, x.dv = ops.attention_grad(x.q, x.k, x.v, x.len, x.o, x.lse, x.dy, nil, nil,
    { scale = 0.25 })
  for _, name in ipairs(NAMES) do
    g:output(name, x[name])
  end
  g:finish()
  local prog, found = run:compile(g), {}
  for name, tensor in pairs(given) do
    prog:set(name, T.from(tensor.shape, tensor:totable(), dtype))
  end
  prog:set("len", T.from({ B }, { M, 3, 20 }, "i32"))
  prog:run()
  for _, name in ipairs(NAMES) do
    found[name] = prog:get(name):totable()
  end
  return found
end

describe("attention in bf16 with large scores", function()
  for _, name in ipairs { "cpu", "cudaemu" } do
    -- builds with sanitizers have no emulated GPU
    local there = name == "cpu" or base.exists((process.program():gsub("[^/]*$",
      "libmoonreel_cudaemu.so")))
    local test = there and it or pending
    test("is finite and near f32 on " .. name, function()
      local device <close> = E.device(name, 1)
      for _, scale in ipairs { 1, 100 } do
        local got, want = results(device, "bf16", scale), results(device, "f32", scale)
        for _, what in ipairs(NAMES) do
          local most, off = 0, 0
          for i, x in ipairs(want[what]) do
            most, off = math.max(most, math.abs(x)), math.max(off, math.abs(got[what][i] - x))
            assert.is_true(got[what][i] - got[what][i] == 0, what .. " is not finite")
          end
          assert.is_true(off <= OFF[what] * most, ("%s: off by %g of %g"):format(what, off, most))
        end
      end
    end)
  end
end)
