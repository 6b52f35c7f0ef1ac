--- The text half of CLIP as layers: learned position embeddings, pre-norms, attention to earlier
-- positions, and the state of the end of text after the last norm. Names of parameters are those of
-- released files. Ref: Radford et al. 2021, arXiv:2103.00020; opensora-2.0.md 14.
-- @module moonreel.models.clip.network
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

local network = {}

-- x sigmoid(1.702 x), which is silu(1.702 x) / 1.702
local SLOPE = 1.702

local function quick_gelu(x)
  return (ops.affine((ops.silu((ops.affine(x, { scale = SLOPE })))), { scale = 1 / SLOPE }))
end

local Block = {}
Block.__index = Block

-- one of the twelve blocks: attention and two products, each after a norm and added to the input
local function block(scope, sizes)
  local D, eps = sizes.hidden_size, sizes.layer_norm_eps
  local attention, mlp = scope:child "self_attn", scope:child "mlp"
  local self = setmetatable({ heads = sizes.num_attention_heads,
    norm1 = nn.LayerNorm(scope, "layer_norm1", D, eps),
    norm2 = nn.LayerNorm(scope, "layer_norm2", D, eps),
    fc1 = nn.Linear(mlp, "fc1", D, sizes.intermediate_size),
    fc2 = nn.Linear(mlp, "fc2", sizes.intermediate_size, D) }, Block)
  for _, name in ipairs { "q_proj", "k_proj", "v_proj", "out_proj" } do
    self[name] = nn.Linear(attention, name, D, D)
  end
  return self
end

function Block:forward(g, x)
  local B, L, D = x.shape[1], x.shape[3], x.shape[4]
  local h, heads = self.norm1(g, x), {}
  for i, name in ipairs { "q_proj", "k_proj", "v_proj" } do
    heads[i] = self[name](g, h):reshape { B, 1, L, self.heads, D // self.heads }
  end
  local o = ops.attention(heads[1], heads[2], heads[3], { frame = 1 })
  x = x + self.out_proj(g, o:reshape { B, 1, L, D })
  return x + self.fc2(g, quick_gelu(self.fc1(g, self.norm2(g, x))))
end

local Encoder = {}
Encoder.__index = Encoder

--- Declares all of the encoder except its words.
---@param params mr.Params
---@param sizes table  from moonreel.models.clip.sizes
function network.new(params, sizes)
  local scope, D = nn.scope(params, "text_model"), sizes.hidden_size
  local self = setmetatable({ blocks = {}, width = D,
    places = scope:child "embeddings.position_embedding":add("weight",
      { sizes.max_position_embeddings, D }, { kind = "normal", scale = 0.01 }),
    final = nn.LayerNorm(scope, "final_layer_norm", D, sizes.layer_norm_eps) }, Encoder)
  for i = 1, sizes.num_hidden_layers do
    self.blocks[i] = block(scope:child("encoder.layers." .. i - 1), sizes)
  end
  return self
end

--- The states of all places.
---@param x mr.Value   [B, 1, L, D]: words
---@return mr.Value    in the shape of x
function Encoder:forward(g, x)
  local L = x.shape[3]
  x = x + g:param(self.places):slice(0, 0, L):reshape { 1, 1, L, self.width }:expand(x.shape)
  for _, one in ipairs(self.blocks) do
    x = one:forward(g, x)
  end
  return self.final(g, x)
end

--- The vector of each text: the state at one place.
---@param x mr.Value    [B, 1, L, D], from forward
---@param at mr.Value   i32 [B, 1]: that place, counted over all texts
---@return mr.Value     [B, 1, D]
function Encoder.pooled(_, x, at)
  local B, L, D = x.shape[1], x.shape[3], x.shape[4]
  return (ops.embedding(at, x:reshape { B * L, D })):reshape { B, 1, D }
end

return network
