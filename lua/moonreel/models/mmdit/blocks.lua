--- Blocks of MMDiT: a text stream and a picture stream with one attention over both, and single
-- stream blocks whose attention and MLP are parallel. Streams are [B, 1, N, D].
-- @module moonreel.models.mmdit.blocks
local G = require "moonreel.core.graph"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

local blocks = {}

local EPS = 1e-6

--- A product with the initial values of the reference's library.
---@param scope mr.Scope
---@param name string
---@param inputs integer
---@param outputs integer
---@param how table|nil  bias = false: no bias; columns, rows: as in nn.Linear
function blocks.linear(scope, name, inputs, outputs, how)
  local uniform = { kind = "uniform", scale = inputs ^ -0.5 }
  return nn.Linear(scope, name, inputs, outputs, nn.merged({ init = uniform, bias_init = uniform },
    how))
end

local linear = blocks.linear

--- The width of an MLP's hidden layer.
---@param c table  config of the model
---@return integer
function blocks.mlp_width(c) return math.floor(c.hidden_size * c.mlp_ratio) end

-- shift, scale, gate from time and text, n values [B, 1, D]. A row per sample costs little but
-- changes all tokens, so it never uses 8 bits.
local function modulation(scope, name, D, n)
  local parts, ranks = {}, scope:split()
  for i = 1, n do
    parts[i] = D
  end
  local lin = linear(scope:child(name, { linear = "none" }), "lin", D, n * D, { columns = parts })
  return function(g, vec)
    local all = lin(g, (ops.silu(vec)))
    if ranks.ranks > 1 then
      local B = all.shape[1]
      all = ranks:gather(g, all:reshape { B, 1, n, ranks:share(D) }, D, 3):reshape { B, 1, n * D }
    end
    return { all:split(2, n) }
  end
end

-- ---- queries, keys, values

-- norms of queries and keys over a head
local function head_norms(scope, d)
  local ranks = scope:split()
  local query = scope:add("query_norm.scale", { d }, { kind = "ones" })
  local key = scope:add("key_norm.scale", { d }, { kind = "ones" })
  return function(g, q, k)
    return (ops.qk_norm(q, ranks:shared(g, g:param(query)), false, false, { eps = EPS })),
      (ops.qk_norm(k, ranks:shared(g, g:param(key)), false, false, { eps = EPS }))
  end
end

-- rows of a fused product are those of queries, keys and values, with heads slowest
local function by_heads(x, first, h, d)
  local B, _, N = table.unpack(x.shape)
  return x:slice(3, first, first + h * d):reshape { B, 1, N, h, d }
end

-- the heads of one stream in a double block on this rank
local function stream_heads(scope, c)
  local D, d = c.hidden_size, c.hidden_size // c.num_heads
  local h = scope:split():share(c.num_heads)
  local norms = head_norms(scope:child "norm", d)
  local part
  if c.fused_qkv then
    local all = linear(scope, "qkv", D, 3 * D, { bias = c.qkv_bias, columns = { D, D, D } })
    part = function(g, x)
      local y = all(g, x)
      return by_heads(y, 0, h, d), by_heads(y, h * d, h, d), by_heads(y, 2 * h * d, h, d)
    end
  else
    local how = { bias = c.qkv_bias, columns = { D } }
    local q, k, v = linear(scope, "q_proj", D, D, how), linear(scope, "k_proj", D, D, how),
      linear(scope, "v_proj", D, D, how)
    part = function(g, x)
      return by_heads(q(g, x), 0, h, d), by_heads(k(g, x), 0, h, d), by_heads(v(g, x), 0, h, d)
    end
  end
  return function(g, x)
    local q, k, v = part(g, x)
    q, k = norms(g, q, k)
    return q, k, v
  end
end

-- attention over the whole sequence, text first; padding of the text takes part
local function attend(g, q, k, v, io)
  local function turned(x)
    return (ops.rotary(x, io.cos, io.sin, { halves = io.halves }))
  end
  local B, _, N, h, d = table.unpack(q.shape)
  q, k = turned(q), turned(k)
  if io.sequence then
    return io.sequence:attend(g, q, k, v, io.tokens):reshape { B, 1, N, h * d }
  end
  local o, lse = ops.attention(q, k, v)
  g:save(o)
  g:save(lse)
  return o:reshape { B, 1, N, h * d }
end

-- ---- double blocks

local Double = {}
Double.__index = Double

-- the layers of one stream
local function stream(scope, side, c)
  local D, M = c.hidden_size, blocks.mlp_width(c)
  local attention = scope:child(side .. "_attn")
  return { modulation = modulation(scope, side .. "_mod", D, 6),
    heads = stream_heads(attention, c), split = scope:split(),
    proj = linear(attention, "proj", D, D, { rows = { D } }),
    first = linear(scope, side .. "_mlp.0", D, M, { columns = { M } }),
    second = linear(scope, side .. "_mlp.2", M, D, { rows = { M } }) }
end

--- Declares a block with two streams.
---@param scope mr.Scope
---@param c table  config of the model
function blocks.double(scope, c)
  return setmetatable({ name = scope.prefix, img = stream(scope, "img", c),
    txt = stream(scope, "txt", c) }, Double)
end

-- a stream of n tokens after the attention
local function finish(g, s, x, m, o, n)
  x = (ops.gated_residual(x, m[3], s.proj(g, o)))
  local y = s.first(g, s.split:gather(g, (ops.layer_norm_modulate(x, m[4], m[5])), n))
  return (ops.gated_residual(x, m[6], s.second(g, (ops.gelu_tanh(y)))))
end

--- Adds its nodes.
---@param img mr.Value  [B, 1, N, D]
---@param txt mr.Value  [B, 1, L, D]
---@param io table      vec [B, 1, D]; cos, sin f32 [L + N, d / 2], halves: the rotation; sequence:
---   ranks that share the tokens, `tokens` in all; text, cells: L and N, of which ranks that share
---   layers have shares
---@return mr.Value img, mr.Value txt
function Double:forward(g, img, txt, io)
  local q, k, v, m = {}, {}, {}, {}
  for i, row in ipairs { { self.txt, txt, io.text }, { self.img, img, io.cells } } do
    local s, x, n = table.unpack(row)
    m[i] = s.modulation(g, io.vec)
    q[i], k[i], v[i] = s.heads(g, s.split:gather(g, (ops.layer_norm_modulate(x, m[i][1],
      m[i][2])), n))
  end
  local o = attend(g, G.concat(q, 2), G.concat(k, 2), G.concat(v, 2), io)
  local L, N = io.text, io.cells
  txt = finish(g, self.txt, txt, m[1], o:slice(2, 0, L), L)
  img = finish(g, self.img, img, m[2], o:slice(2, L, L + N), N)
  return img, txt
end

-- ---- single blocks

local Single = {}
Single.__index = Single

--- Declares a block with one stream.
---@param scope mr.Scope
---@param c table  config of the model
function blocks.single(scope, c)
  local D, M = c.hidden_size, blocks.mlp_width(c)
  local ranks = scope:split()
  local self = setmetatable({ name = scope.prefix, split = ranks, width = ranks:share(D),
    mlp = ranks:share(M), heads = ranks:share(c.num_heads),
    modulation = modulation(scope, "modulation", D, 3),
    norms = head_norms(scope:child "norm", D // c.num_heads),
    last = linear(scope, "linear2", D + M, D, { rows = { D, M } }) }, Single)
  if c.fused_qkv then
    self.all = linear(scope, "linear1", D, 3 * D + M, { columns = { D, D, D, M } })
  else
    self.q = linear(scope, "q_proj", D, D, { columns = { D } })
    self.k = linear(scope, "k_proj", D, D, { columns = { D } })
    self.v_mlp = linear(scope, "v_mlp", D, D + M, { columns = { D, M } })
  end
  return self
end

-- queries, keys, values by head, and the hidden layer of the MLP
local function parts_of(self, g, x)
  local D, h, d = self.width, self.heads, self.width // self.heads
  if self.all then
    local y = self.all(g, x)
    return by_heads(y, 0, h, d), by_heads(y, D, h, d), by_heads(y, 2 * D, h, d),
      y:slice(3, 3 * D, 3 * D + self.mlp)
  end
  local both = self.v_mlp(g, x)
  return by_heads(self.q(g, x), 0, h, d), by_heads(self.k(g, x), 0, h, d),
    by_heads(both, 0, h, d), both:slice(3, D, D + self.mlp)
end

--- Adds its nodes.
---@param x mr.Value  [B, 1, L + N, D]
---@param io table    as in a double block
---@return mr.Value   in the shape of x
function Single:forward(g, x, io)
  local m = self.modulation(g, io.vec)
  local all = self.split:gather(g, (ops.layer_norm_modulate(x, m[1], m[2])), io.text + io.cells)
  local q, k, v, hidden = parts_of(self, g, all)
  q, k = self.norms(g, q, k)
  local both = { attend(g, q, k, v, io), (ops.gelu_tanh(hidden)) }
  return (ops.gated_residual(x, m[3], self.last(g, both)))
end

return blocks
