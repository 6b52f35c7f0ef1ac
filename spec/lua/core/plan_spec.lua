--- Plans a model that is too large for most machines: MMDiT of Open-Sora 2.0, 11.89 G parameters,
-- forward and backward with all blocks recomputed.
-- Covers: core/exec/plan.c
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local H, HEADS, DOUBLE, SINGLE, IMAGE, TEXT = 3072, 24, 19, 38, 7680, 512

-- parameters are declared while the first model is built, then the table is sealed
local function table_of_parameters()
  local params = G.params("bf16")
  local function weight(name, ...)
    params:add{name = name, shape = {...}, init = {kind = "zeros"}}
  end
  weight("img_in", H, 64)
  weight("txt_in", H, 4096)
  weight("vec_in", H, 256)
  for i = 1, DOUBLE do
    for _, stream in ipairs{"img", "txt"} do
      local p = ("double.%d.%s."):format(i, stream)
      weight(p .. "mod", 6 * H, H)
      weight(p .. "qkv", 3 * H, H)
      weight(p .. "proj", H, H)
      weight(p .. "up", 4 * H, H)
      weight(p .. "down", H, 4 * H)
    end
  end
  for i = 1, SINGLE do
    local p = ("single.%d."):format(i)
    weight(p .. "mod", 3 * H, H)
    weight(p .. "in", 7 * H, H)
    weight(p .. "out", H, 5 * H)
  end
  weight("final_mod", 2 * H, H)
  weight("final", 64, H)
  params:seal()
  return params
end

local function last(x, from, to)
  return x:slice(#x.shape - 1, from * H, to * H)
end

local function heads(x)
  return x:reshape{1, 1, x.shape[3], HEADS, H // HEADS}
end

local function build(params)
  local g = G.graph(params)
  local function linear(x, name)
    return ops.linear(x, g:param(name))
  end
  local vec = linear(g:input("t", "bf16", {1, 1, 256}), "vec_in")
  local function modulate(x, mod, k)
    return ops.layer_norm_modulate(x, last(mod, k, k + 1), last(mod, k + 1, k + 2))
  end
  local function attend(q, k, v)
    local y = ops.attention(heads(q), heads(k), heads(v))
    return y:reshape{1, 1, q.shape[3], H}
  end
  local x = {img = linear(g:input("img", "bf16", {1, 1, IMAGE, 64}), "img_in"),
    txt = linear(g:input("txt", "bf16", {1, 1, TEXT, 4096}), "txt_in")}
  for i = 1, DOUBLE do
    g:block(("double.%d"):format(i), true, function()
      local mod, joint = {}, {}
      for _, s in ipairs{"txt", "img"} do
        local p = ("double.%d.%s."):format(i, s)
        mod[s] = linear(vec, p .. "mod")
        local qkv = linear(modulate(x[s], mod[s], 0), p .. "qkv")
        for k = 1, 3 do
          local part = last(qkv, k - 1, k)
          joint[k] = joint[k] and G.concat({joint[k], part}, 2) or part
        end
      end
      local y = attend(joint[1], joint[2], joint[3])
      local part = {txt = y:slice(2, 0, TEXT), img = y:slice(2, TEXT, TEXT + IMAGE)}
      for _, s in ipairs{"txt", "img"} do
        local p = ("double.%d.%s."):format(i, s)
        local z = ops.gated_residual(x[s], last(mod[s], 2, 3), linear(part[s], p .. "proj"))
        local up = ops.gelu_tanh(linear(modulate(z, mod[s], 3), p .. "up"))
        x[s] = ops.gated_residual(z, last(mod[s], 5, 6), linear(up, p .. "down"))
      end
    end)
  end
  local y = G.concat({x.txt, x.img}, 2)
  for i = 1, SINGLE do
    g:block(("single.%d"):format(i), true, function()
      local p = ("single.%d."):format(i)
      local mod = linear(vec, p .. "mod")
      local h = linear(modulate(y, mod, 0), p .. "in")
      local both = G.concat({attend(last(h, 0, 1), last(h, 1, 2), last(h, 2, 3)),
        ops.gelu_tanh(last(h, 3, 7))}, 3)
      y = ops.gated_residual(y, last(mod, 2, 3), linear(both, p .. "out"))
    end)
  end
  local mod = linear(vec, "final_mod")
  local out = linear(modulate(y:slice(2, TEXT, TEXT + IMAGE), mod, 0), "final")
  local loss = ops.sum(ops.cast(out, {dtype = "f32"}), {axes = {0, 1, 2, 3}})
  g:output("loss", loss)
  g:backward(loss, {})
  g:finish()
  return g
end

-- peak memory of this process in bytes
local function peak()
  for line in io.lines("/proc/self/status") do
    local kib = line:match("^VmHWM:%s+(%d+)")
    if kib then
      return kib * 1024
    end
  end
end

describe("a plan of 11.89 G parameters", function()
  it("reports its bytes and its cost, and needs little memory itself", function()
    local before = peak()
    local params <close> = table_of_parameters()
    local count = params:elements(false)
    assert.near(11.85e9, count, 0.1e9)
    local exec <close> = E.plan(params, {regions = regions.adamw(), rates = E.device("cpu", 1),
      facts = {isa = "avx512", threads = 64, bf16 = true, amx = true}})
    local g <close> = build(params)
    local plan = exec:compile(g):plan()
    local m = plan.memory
    assert.equal(2 * count, m.params)
    assert.equal(16 * count, m.state) -- gradients, master, two moments
    -- reference plan, section 2: linear and attention, forward once more for recomputation
    local tokens = IMAGE + TEXT
    local lin = 24 * H * H * tokens * (DOUBLE + SINGLE)
    local att = 4 * tokens * tokens * H * (DOUBLE + SINGLE)
    assert.near(1, plan.flop / (4 * lin + 4.5 * att), 0.01)
    -- kept: two bytes for each token and channel of each block, and the work of one block
    assert.is_true(m.arena > 2 * H * tokens * (DOUBLE + SINGLE))
    assert.is_true(m.arena < 12e9 and m.arena < 1.01 * m.bound)
    -- teraflops of one thread
    assert.is_true(plan.flop / plan.seconds > 1e9 and plan.flop / plan.seconds < 1e13)
    assert.is_true(peak() - before < 500e6)
  end)
end)
