--- Layers of T5: buckets of distances, position biases, lengths and norms. Reference values: make
-- golden.
-- Covers: lua/moonreel/models/t5/network.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local network = require "moonreel.models.t5.network"
local nn = require "moonreel.nn"

local SIZES = { d_model = 8, d_kv = 4, d_ff = 12, num_layers = 2, num_heads = 2,
  relative_attention_num_buckets = 32, relative_attention_max_distance = 128,
  layer_norm_epsilon = 1e-6 }

describe("buckets of distances", function()
  local bucket = network.bucket(32, 128)

  it("hold one distance each for near keys, more for far ones, and the last all others", function()
    local seen = {}
    for rel = -7, 7 do
      seen[#seen + 1] = bucket(rel)
    end
    assert.same({ 7, 6, 5, 4, 3, 2, 1, 0, 17, 18, 19, 20, 21, 22, 23 }, seen)
    assert.same({ 8, 8, 9, 9, 10, 15, 15, 15 }, { bucket(-8), bucket(-11), bucket(-12), bucket(-15),
      bucket(-16), bucket(-91), bucket(-128), bucket(-5000) })
    for rel = 1, 300 do
      assert.equal(bucket(-rel) + 16, bucket(rel))
      assert.is_true(bucket(rel) >= bucket(rel - 1))
    end
  end)
end)

describe("layers of T5", function()
  local device <const> = E.device("cpu", 1)

  -- runs nodes over random weights; `set` changes some of them
  local function run(declare, nodes, given, set)
    local params = G.params "f32"
    local layers = declare(params)
    params:seal()
    local exec = E.new(device, params, {})
    for i, p in ipairs(params:list()) do
      local t = T.new("f32", p.shape):fill_normal(i, "network_spec")
      exec:set_param("w", p.name, set and set[p.name] or t)
    end
    local g, inputs = G.graph(params), {}
    for name, t in pairs(given) do
      inputs[name] = g:input(name, t.dtype, t.shape)
    end
    g:output("out", nodes(g, layers, inputs))
    g:finish()
    local prog = exec:compile(g)
    for name, t in pairs(given) do
      prog:set(name, t)
    end
    prog:run()
    return prog:get "out"
  end

  it("add the bias of a distance in each head", function()
    local rows = {}
    for i = 0, 63 do
      rows[i + 1] = i
    end
    local name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    local out = run(function(params) return network.bias(nn.scope(params, "encoder"), SIZES) end,
      function(g, bias) return bias:forward(g, 11) end, {},
      { [name] = T.from({ 32, 2 }, rows) })
    assert.same({ 2, 11, 11 }, out.shape)
    local bucket, values = network.bucket(32, 128), out:totable()
    for h = 0, 1 do
      for i = 0, 10 do
        for j = 0, 10 do
          assert.equal(2 * bucket(j - i) + h, values[(h * 11 + i) * 11 + j + 1])
        end
      end
    end
  end)

  -- a block in plain numbers: x [L][8], weights by name, bias [2][L][L]
  local function plain_block(x, w, bias)
    local L, D, d = #x, 8, 4
    local function linear(rows, name, out)
      local y, m, n = {}, w[name], #rows[1]
      for r, row in ipairs(rows) do
        y[r] = {}
        for o = 1, out do
          local sum = 0
          for i = 1, n do
            sum = sum + row[i] * m[(o - 1) * n + i]
          end
          y[r][o] = sum
        end
      end
      return y
    end
    local function norm(rows, name)
      local y = {}
      for r, row in ipairs(rows) do
        local squares = 0
        for _, v in ipairs(row) do
          squares = squares + v * v
        end
        y[r] = {}
        for i, v in ipairs(row) do
          y[r][i] = v / (squares / D + 1e-6) ^ 0.5 * w[name][i]
        end
      end
      return y
    end
    local function add(a, b)
      for r, row in ipairs(b) do
        for i, v in ipairs(row) do
          a[r][i] = a[r][i] + v
        end
      end
    end
    local h = norm(x, "layer.0.layer_norm.weight")
    local q, k, v = linear(h, "layer.0.SelfAttention.q.weight", D),
      linear(h, "layer.0.SelfAttention.k.weight", D),
      linear(h, "layer.0.SelfAttention.v.weight", D)
    local o = {}
    for i = 1, L do
      o[i] = {}
      for head = 0, 1 do
        local p, sum = {}, 0
        for j = 1, L do
          local score = bias[(head * L + i - 1) * L + j]
          for e = 1, d do
            score = score + q[i][head * d + e] * k[j][head * d + e]
          end
          p[j] = math.exp(score)
          sum = sum + p[j]
        end
        for e = 1, d do
          local total = 0
          for j = 1, L do
            total = total + p[j] * v[j][head * d + e]
          end
          o[i][head * d + e] = total / sum
        end
      end
    end
    add(x, linear(o, "layer.0.SelfAttention.o.weight", D))
    h = norm(x, "layer.1.layer_norm.weight")
    local gate, up = linear(h, "layer.1.DenseReluDense.wi_0.weight", 12),
      linear(h, "layer.1.DenseReluDense.wi_1.weight", 12)
    for r, row in ipairs(gate) do
      for i, a in ipairs(row) do
        local u = (2 / math.pi) ^ 0.5 * (a + 0.044715 * a ^ 3)
        row[i] = a / (1 + math.exp(-2 * u)) * up[r][i]
      end
    end
    add(x, linear(gate, "layer.1.DenseReluDense.wo.weight", D))
    return x
  end

  it("compute, in a block, what the formulas say", function()
    local L, given, weights = 5, {}, {}
    given.x = T.new("f32", { 1, 1, L, 8 }):fill_normal(1, "x")
    given.bias = T.new("f32", { 2, L, L }):fill_normal(2, "bias")
    local params = G.params "f32"
    network.block(nn.scope(params, "b"), SIZES)
    local set = {}
    for i, p in ipairs(params:list()) do
      set[p.name] = T.new("f32", p.shape):fill_normal(i, "weights") * 0.5
      weights[p.name:gsub("^b%.", "")] = set[p.name]:totable()
    end
    local out = run(function(all) return network.block(nn.scope(all, "b"), SIZES) end,
      function(g, block, io) return block:forward(g, io.x, io.bias) end, given, set)
    local rows, flat = {}, given.x:totable()
    for i = 1, L do
      rows[i] = table.move(flat, (i - 1) * 8 + 1, i * 8, 1, {})
    end
    local want, got = plain_block(rows, weights, given.bias:totable()), out:totable()
    for i = 1, L do
      for c = 1, 8 do
        assert.near(want[i][c], got[(i - 1) * 8 + c], 1e-5)
      end
    end
  end)

  local function encode(L, len, x)
    return run(function(params) return network.new(params, SIZES) end,
      function(g, net, io) return net:forward(g, io.x, io.len) end,
      { x = x or T.new("f32", { 1, 1, L, 8 }):fill_normal(1, "x"),
        len = len and T.from({ 1 }, { len }, "i32") })
  end

  it("ignore tokens after the length, and use all tokens without a length", function()
    local x = T.new("f32", { 1, 1, 20, 8 }):fill_normal(1, "x")
    local other = x:clone()
    other:slice(2, 15, 20):copy_from(T.new("f32", { 1, 1, 5, 8 }):fill_normal(2, "x"))
    local function head(t) return t:slice(2, 0, 15):clone():bytes() end
    assert.equal(head(encode(20, 15, x)), head(encode(20, 15, other)))
    assert.not_equal(head(encode(20, nil, x)), head(encode(20, nil, other)))
    assert.equal(encode(20, 20, x):bytes(), encode(20, nil, x):bytes())
  end)

  it("end in a norm without mean", function()
    local out = run(function(params) return network.final(nn.scope(params, "encoder"), SIZES) end,
      function(g, final, io) return final(g, io.x) end,
      { x = T.from({ 1, 8 }, { 1, 2, 3, 4, 5, 6, 7, 8 }) },
      { ["encoder.final_layer_norm.weight"] = T.from({ 8 }, { 2, 2, 2, 2, 2, 2, 2, 2 }) })
    local rms = (204 / 8) ^ 0.5
    for i, v in ipairs(out:totable()) do
      assert.near(2 * i / rms, v, 1e-6)
    end
  end)
end)
