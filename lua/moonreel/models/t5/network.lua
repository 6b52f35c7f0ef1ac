--- The encoder of T5 v1.1 as layers: no biases, norms without mean, scores that are not scaled, a
-- gated GELU, and one table of position biases that all blocks share. Names of parameters are those
-- of released files. Ref: opensora-1.2.md 6; Raffel et al. 2020, arXiv:1910.10683.
-- @module moonreel.models.t5.network
local T = require "moonreel.core.tensor"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

local network = {}

-- rounds a number to f32
local function f32(x) return (string.unpack("<f", string.pack("<f", x))) end

--- The buckets of distances to keys: near keys have one each, more distant ones share them, up to
-- the largest distance; keys after the query have half of the buckets. Rounded like f32 arithmetic.
---@param count integer     buckets
---@param furthest integer  distances from here on share the last bucket
---@return fun(rel: integer): integer  bucket of key position - query position
function network.bucket(count, furthest)
  local half = count // 2
  local near = half // 2
  local span = f32(math.log(furthest / near))
  return function(rel)
    local n, base = math.abs(rel), rel > 0 and half or 0
    if n < near then
      return base + n
    end
    local share = f32(f32(math.log(f32(n / near))) / span)
    return base + math.min(half - 1, near + math.floor(f32(share * (half - near))))
  end
end

local Block = {}
Block.__index = Block

--- Declares a block.
---@param scope mr.Scope  "encoder.block.3"
---@param sizes table     from moonreel.models.t5.sizes
function network.block(scope, sizes)
  local D, inner, split = sizes.d_model, sizes.num_heads * sizes.d_kv, scope:split()
  local by_heads, by_hidden = { bias = false, columns = { inner } },
    { bias = false, columns = { sizes.d_ff } }
  local attention, mlp = scope:child "layer.0", scope:child "layer.1"
  local self = setmetatable({ split = split, heads = split:share(sizes.num_heads),
    d = sizes.d_kv,
    norm1 = nn.RMSNorm(attention, "layer_norm", D, sizes.layer_norm_epsilon),
    norm2 = nn.RMSNorm(mlp, "layer_norm", D, sizes.layer_norm_epsilon) }, Block)
  for _, name in ipairs { "q", "k", "v" } do
    self[name] = nn.Linear(attention, "SelfAttention." .. name, D, inner, by_heads)
  end
  self.o = nn.Linear(attention, "SelfAttention.o", inner, D, { bias = false, rows = { inner } })
  self.wi_0 = nn.Linear(mlp, "DenseReluDense.wi_0", D, sizes.d_ff, by_hidden)
  self.wi_1 = nn.Linear(mlp, "DenseReluDense.wi_1", D, sizes.d_ff, by_hidden)
  self.wo = nn.Linear(mlp, "DenseReluDense.wo", sizes.d_ff, D,
    { bias = false, rows = { sizes.d_ff } })
  return self
end

--- Adds the nodes of a block.
---@param x mr.Value         [B, 1, own L, D]: each rank that shares it has some tokens
---@param bias mr.Value      [own heads, L, L], added to the scores
---@param len mr.Value|nil   i32 [B]: tokens in use; nil: all
---@return mr.Value          in the shape of x
function Block:forward(g, x, bias, len)
  local B, L = x.shape[1], bias.shape[2]
  local h, heads = self.split:gather(g, self.norm1(g, x), L), {}
  for i, name in ipairs { "q", "k", "v" } do
    heads[i] = self[name](g, h):reshape { B, 1, L, self.heads, self.d }
  end
  local o = ops.attention(heads[1], heads[2], heads[3], len or false, bias, { scale = 1 })
  x = x + self.o(g, o:reshape { B, 1, L, self.heads * self.d })
  h = self.split:gather(g, self.norm2(g, x), L)
  return x + self.wo(g, (ops.gelu_tanh(self.wi_0(g, h))) * self.wi_1(g, h))
end

local Bias = {}
Bias.__index = Bias

--- Declares the table of position biases.
---@param scope mr.Scope  "encoder"
function network.bias(scope, sizes)
  local rows, heads = sizes.relative_attention_num_buckets, sizes.num_heads
  return setmetatable({ heads = scope:split():share(heads), rows = rows,
    furthest = sizes.relative_attention_max_distance, table = nn.Embedding(scope,
      "block.0.layer.0.SelfAttention.relative_attention_bias", rows, heads,
      nil, { heads }) }, Bias)
end

--- The biases for every query and key.
---@param L integer   tokens
---@return mr.Value   [own heads, L, L]
function Bias:forward(g, L)
  local bucket, of, ids = network.bucket(self.rows, self.furthest), {}, {}
  for rel = 1 - L, L - 1 do
    of[rel] = bucket(rel)
  end
  for i = 0, L - 1 do
    for j = 0, L - 1 do
      ids[#ids + 1] = of[j - i]
    end
  end
  local all = self.table(g, g:const(T.from({ L * L, 1 }, ids, "i32")))
  return all:reshape { L, L, self.heads }:permute { 2, 0, 1 }
end

local Encoder = {}
Encoder.__index = Encoder

--- Declares the norm after the last block.
---@param scope mr.Scope  "encoder"
function network.final(scope, sizes)
  return nn.RMSNorm(scope, "final_layer_norm", sizes.d_model, sizes.layer_norm_epsilon)
end

--- Declares all of the encoder except its words.
---@param params mr.Params
---@param split mr.Split|nil  ranks that share its layers
function network.new(params, sizes, split)
  local scope = nn.scope(params, "encoder", { split = split })
  local self = setmetatable({ split = scope:split(), bias = network.bias(scope, sizes), blocks = {},
    final = network.final(scope, sizes) }, Encoder)
  for i = 1, sizes.num_layers do
    self.blocks[i] = network.block(scope:child("block." .. i - 1), sizes)
  end
  return self
end

--- Adds the nodes of the encoder.
---@param x mr.Value         [B, 1, L, D]: words
---@param len mr.Value|nil   i32 [B]: tokens in use; nil: all
---@param io table|nil       mask: [1, L, L] added to the biases; tap(name, value)
---@return mr.Value          [B, 1, L, D]
function Encoder:forward(g, x, len, io)
  io = io or {}
  local L = x.shape[3]
  local bias = self.bias:forward(g, L)
  if io.mask then
    bias = bias + io.mask
  end
  x = self.split:begin(g, x)
  for i, block in ipairs(self.blocks) do
    x = block:forward(g, x, bias, len)
    if io.tap then
      io.tap("block" .. i - 1, x)
    end
  end
  return self.split:finish(g, self.final(g, x), L)
end

return network
