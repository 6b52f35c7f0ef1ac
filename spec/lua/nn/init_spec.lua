--- Layers compared with their formulas in plain Lua doubles (reference opensora-1.2, section 1.4).
-- Inputs of norms are so small that the eps under the root counts.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

local NORM_EPS = 1e-6
local B, FRAMES, CELLS, D, HEADS, TEXT = 2, 3, 4, 8, 2, 5
local d = D // HEADS

local function normals(shape, stream, scale)
  return T.new("f32", shape):fill_normal(8, stream) * (scale or 1)
end

-- The value of a graph over the weights that `declare` adds, and these weights as numbers by name.
-- `build(g, layer, inputs)` adds the nodes and returns the value; `change(name, w)` may return
-- other weights than normal ones.
local function evaluate(declare, build, inputs, change)
  local params = G.params("f32")
  local layer = declare(nn.scope(params))
  params:seal()
  local run, weights = E.new(E.device("cpu", 1), params, {}), {}
  run:init(1)
  for _, p in ipairs(params:list()) do
    -- no weight is one and no bias zero
    local w = normals(p.shape, p.name, 0.4)
    w = change and change(p.name, w) or w
    run:set_param("w", p.name, w)
    weights[p.name] = w:totable()
  end
  local g, values = G.graph(params), {}
  for name, tensor in pairs(inputs) do
    values[name] = g:input(name, tensor.dtype, tensor.shape)
  end
  g:output("out", build(g, layer, values))
  g:finish()
  local prog = run:compile(g)
  for name, tensor in pairs(inputs) do
    prog:set(name, tensor)
  end
  prog:run()
  return prog:get("out"):totable(), weights
end

-- row i (from 0) of width n of a flat list
local function row(list, i, n) return table.move(list, i * n + 1, (i + 1) * n, 1, {}) end

-- y = x w' + b of one row
local function linear(x, weights, name)
  local w, bias, y = weights[name .. ".weight"], weights[name .. ".bias"], {}
  for o = 1, #bias do
    y[o] = bias[o]
    for i = 1, #x do
      y[o] = y[o] + x[i] * w[(o - 1) * #x + i]
    end
  end
  return y
end

local function mean(x)
  local sum = 0
  for _, v in ipairs(x) do
    sum = sum + v
  end
  return sum / #x
end

local function mean_square(x)
  local sum = 0
  for _, v in ipairs(x) do
    sum = sum + v * v
  end
  return sum / #x
end

-- without mean, of unit variance
local function layer_norm(x)
  local m, y = mean(x), {}
  for i, v in ipairs(x) do
    y[i] = v - m
  end
  local root = (mean_square(y) + NORM_EPS) ^ 0.5
  for i, v in ipairs(y) do
    y[i] = v / root
  end
  return y
end

local function rms_norm(x, w)
  local root, y = (mean_square(x) + NORM_EPS) ^ 0.5, {}
  for i, v in ipairs(x) do
    y[i] = v / root * w[i]
  end
  return y
end

-- pairs (2k, 2k + 1) turned by angle position / 10000^(2k / d)
local function rotate(x, position)
  local y = {}
  for k = 0, #x // 2 - 1 do
    local angle = position * 10000 ^ (-2 * k / #x)
    local a, b = x[2 * k + 1], x[2 * k + 2]
    y[2 * k + 1] = a * math.cos(angle) - b * math.sin(angle)
    y[2 * k + 2] = b * math.cos(angle) + a * math.sin(angle)
  end
  return y
end

-- one query over lists of keys and values
local function attend(q, keys, values)
  local weights, total, out = {}, 0, {}
  for j, k in ipairs(keys) do
    local score = 0
    for i = 1, #q do
      score = score + q[i] * k[i]
    end
    weights[j] = math.exp(score * (#q) ^ -0.5)
    total = total + weights[j]
  end
  for i = 1, #q do
    out[i] = 0
    for j, v in ipairs(values) do
      out[i] = out[i] + weights[j] / total * v[i]
    end
  end
  return out
end

local function assert_near(want, got, tolerance)
  assert.equal(#want, #got)
  for i = 1, #want do
    assert.near(want[i], got[i], tolerance)
  end
end

-- part of a row: head h (from 0)
local function head(x, h, first)
  return table.move(x, first + h * d + 1, first + (h + 1) * d, 1, {})
end

describe("nn.LayerNorm", function()
  it("subtracts the mean, divides by the deviation, and has weight and bias", function()
    local x = normals({3, 6}, "x", 1e-3)
    local got, weights = evaluate(function(scope) return nn.LayerNorm(scope, "norm", 6) end,
      function(g, layer, io) return layer(g, io.x) end, {x = x})
    local want, values = {}, x:totable()
    for r = 0, 2 do
      for i, v in ipairs(layer_norm(row(values, r, 6))) do
        want[#want + 1] = v * weights["norm.weight"][i] + weights["norm.bias"][i]
      end
    end
    assert_near(want, got, 1e-5)
  end)

  it("has the eps of norms that a model modulates", function()
    local dims = {B, FRAMES, CELLS, D}
    local io = {x = normals(dims, "x", 1e-3), shift = normals({B, FRAMES, D}, "shift"),
      scale = normals({B, FRAMES, D}, "scale")}
    local got = evaluate(function(scope) scope:add("none", {1}, {kind = "zeros"}) end,
      function(_, _, v) return (ops.layer_norm_modulate(v.x, v.shift, v.scale)) end, io)
    local want, x = {}, io.x:totable()
    local shift, scale = io.shift:totable(), io.scale:totable()
    for r = 0, B * FRAMES * CELLS - 1 do
      local frame = r // CELLS * D
      for i, v in ipairs(layer_norm(row(x, r, D))) do
        want[#want + 1] = v * (1 + scale[frame + i]) + shift[frame + i]
      end
    end
    assert_near(want, got, 1e-5)
  end)
end)

describe("nn.SelfAttention", function()
  -- cells that one cell attends to, as {frame, cell}
  local function seen(t, s, temporal, len)
    local list = {}
    for i = 0, (temporal and FRAMES or len or CELLS) - 1 do
      list[i + 1] = temporal and {i, s} or {t, i}
    end
    return list
  end

  local function oracle(x, w, case)
    local out = {}
    local function parts(b, t, s)
      local cell = (b * FRAMES + t) * CELLS + s
      local y = linear(row(x, cell, D), w, "attn.qkv")
      local one = {q = {}, k = {}, v = {}}
      for h = 0, HEADS - 1 do
        local q, k = head(y, h, 0), head(y, h, D)
        if case.qk_norm then
          q, k = rms_norm(q, w["attn.q_norm.weight"]), rms_norm(k, w["attn.k_norm.weight"])
        end
        if case.temporal then
          q, k = rotate(q, t), rotate(k, t)
        end
        one.q[h], one.k[h], one.v[h] = q, k, head(y, h, 2 * D)
      end
      return one
    end
    for b = 0, B - 1 do
      for t = 0, FRAMES - 1 do
        for s = 0, CELLS - 1 do
          local mixed = {}
          for h = 0, HEADS - 1 do
            local keys, values = {}, {}
            for j, at in ipairs(seen(t, s, case.temporal, case.len and case.len[b + 1])) do
              local one = parts(b, at[1], at[2])
              keys[j], values[j] = one.k[h], one.v[h]
            end
            for _, v in ipairs(attend(parts(b, t, s).q[h], keys, values)) do
              mixed[#mixed + 1] = v
            end
          end
          for _, v in ipairs(linear(mixed, w, "attn.proj")) do
            out[#out + 1] = v
          end
        end
      end
    end
    return out
  end

  -- cos and sin of the rotation of each frame
  local function rope()
    local cos, sin = {}, {}
    for t = 0, FRAMES - 1 do
      for k = 0, d // 2 - 1 do
        local angle = t * 10000 ^ (-2 * k / d)
        cos[#cos + 1], sin[#sin + 1] = math.cos(angle), math.sin(angle)
      end
    end
    return T.from({FRAMES, d // 2}, cos), T.from({FRAMES, d // 2}, sin)
  end

  -- queries and keys of a size near the root of eps
  local function small_queries_and_keys(name, w)
    if not name:find("qkv") then
      return w
    end
    local values = w:totable()
    for i = 1, #values // 3 * 2 do
      values[i] = values[i] * 1e-3
    end
    return T.from(w.shape, values)
  end

  for name, case in pairs{["within a frame"] = {qk_norm = true},
      ["along time, with rotation"] = {qk_norm = true, temporal = true},
      ["without a norm of queries and keys"] = {qk_norm = false},
      ["over the keys in use"] = {qk_norm = true, len = {2, 3}}} do
    it("computes softmax attention of heads " .. name, function()
      local io = {x = normals({B, FRAMES, CELLS, D}, "x")}
      io.cos, io.sin = rope()
      local frames = FRAMES
      if case.len then
        -- lengths belong to samples of one frame: frames become samples
        io.len, frames = T.from({B * FRAMES}, {2, 2, 2, 3, 3, 3}, "i32"), 1
      end
      local got, weights = evaluate(function(scope)
        return nn.SelfAttention(scope, "attn", D, {heads = HEADS, qk_norm = case.qk_norm})
      end, function(g, layer, v)
        return layer(g, v.x:reshape{B * FRAMES // frames, frames, CELLS, D},
          {temporal = case.temporal, len = v.len,
            rope = case.temporal and {cos = v.cos, sin = v.sin} or nil})
      end, io, case.qk_norm and small_queries_and_keys or nil)
      assert_near(oracle(io.x:totable(), weights, case), got, 2e-5)
    end)
  end
end)

describe("nn.CrossAttention", function()
  it("lets each token attend to the used text of its sample", function()
    local len = {2, TEXT}
    local io = {x = normals({B, FRAMES, CELLS, D}, "x"), y = normals({B, TEXT, D}, "y"),
      len = T.from({B}, len, "i32")}
    local got, w = evaluate(function(scope)
      return nn.CrossAttention(scope, "cross", D, {heads = HEADS})
    end, function(g, layer, v) return layer(g, v.x, v.y, v.len) end, io)
    local x, y, want = io.x:totable(), io.y:totable(), {}
    for cell = 0, B * FRAMES * CELLS - 1 do
      local b, mixed = cell // (FRAMES * CELLS), {}
      local q = linear(row(x, cell, D), w, "cross.q_linear")
      for h = 0, HEADS - 1 do
        local keys, values = {}, {}
        for i = 0, len[b + 1] - 1 do
          local kv = linear(row(y, b * TEXT + i, D), w, "cross.kv_linear")
          keys[i + 1], values[i + 1] = head(kv, h, 0), head(kv, h, D)
        end
        for _, v in ipairs(attend(head(q, h, 0), keys, values)) do
          mixed[#mixed + 1] = v
        end
      end
      for _, v in ipairs(linear(mixed, w, "cross.proj")) do
        want[#want + 1] = v
      end
    end
    assert_near(want, got, 2e-5)
  end)
end)

describe("nn.Mlp", function()
  it("has the tanh form of GELU between its two layers", function()
    local x = normals({3, 6}, "x", 2)
    local got, w = evaluate(function(scope) return nn.Mlp(scope, "mlp", 6, 10, 4) end,
      function(g, layer, io) return layer(g, io.x) end, {x = x})
    local want, values = {}, x:totable()
    for r = 0, 2 do
      local hidden = linear(row(values, r, 6), w, "mlp.fc1")
      for i, v in ipairs(hidden) do
        local e = math.exp(2 * (2 / math.pi) ^ 0.5 * (v + 0.044715 * v ^ 3))
        hidden[i] = v * e / (e + 1)
      end
      for _, v in ipairs(linear(hidden, w, "mlp.fc2")) do
        want[#want + 1] = v
      end
    end
    assert_near(want, got, 2e-5)
  end)
end)

describe("nn.ScalarEmbedder", function()
  it("takes cosines first, of 128 decreasing frequencies", function()
    local numbers = {0, 31.25, 731}
    local got, w = evaluate(function(scope) return nn.ScalarEmbedder(scope, "time", D) end,
      function(g, layer, io) return layer(g, io.v, "f32") end, {v = T.from({3}, numbers)})
    local want = {}
    for _, v in ipairs(numbers) do
      local wave = {}
      for k = 0, 127 do
        local angle = v * math.exp(-math.log(10000) * k / 128)
        wave[k + 1], wave[k + 129] = math.cos(angle), math.sin(angle)
      end
      local hidden = linear(wave, w, "time.mlp.0")
      for i, h in ipairs(hidden) do
        hidden[i] = h / (1 + math.exp(-h))
      end
      for _, y in ipairs(linear(hidden, w, "time.mlp.2")) do
        want[#want + 1] = y
      end
    end
    -- an angle of 731 is accurate to 3e-5 in f32
    assert_near(want, got, 2e-4)
  end)
end)

describe("nn.Embedding", function()
  it("adds the rows of its ids and leaves -1 out", function()
    local ids = {3, -1, 0, 0, -1, -1}
    local got, w = evaluate(function(scope) return nn.Embedding(scope, "table", 4, 3) end,
      function(g, layer, io) return layer(g, io.ids) end, {ids = T.from({3, 2}, ids, "i32")})
    local want, rows = {}, w["table.weight"]
    for r = 0, 2 do
      for i = 1, 3 do
        local sum = 0
        for k = 1, 2 do
          local id = ids[2 * r + k]
          sum = sum + (id < 0 and 0 or rows[id * 3 + i])
        end
        want[#want + 1] = sum
      end
    end
    assert_near(want, got, 1e-6)
  end)
end)

describe("nn.round_bf16", function()
  it("rounds to the nearest, of two the even one", function()
    assert.equal(856, nn.round_bf16(854))
    assert.equal(924, nn.round_bf16(925))
    assert.equal(1.0, nn.round_bf16(1 + 2 ^ -9))
  end)
end)
