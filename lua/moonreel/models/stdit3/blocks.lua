--- Blocks of STDiT3: attention over the cells of a frame or over the frames of a cell, attention to
-- the text, MLP, each modulated by time.
-- @module moonreel.models.stdit3.blocks
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

local blocks = {}

local Block = {}
Block.__index = Block

--- The width of the hidden layer in a block's MLP.
---@param c table  config of the model
---@return integer
function blocks.mlp_width(c) return math.floor(c.hidden_size * c.mlp_ratio) end

--- Declares the parameters of a block.
---@param scope table       from nn.scope
---@param c table           config of the model
---@param temporal boolean  over frames, or over the cells of each frame
function blocks.new(scope, c, temporal)
  -- a new temporal block is the identity: its three output projections start at zero
  local out = temporal and {kind = "zeros"} or nil
  local D = c.hidden_size
  return setmetatable({
    temporal = temporal, name = scope.prefix, width = D, split = scope:split(),
    table = scope:add("scale_shift_table", {6, D}, {kind = "normal", scale = D ^ -0.5}),
    attn = nn.SelfAttention(scope, "attn", D,
      {heads = c.num_heads, qk_norm = c.qk_norm, proj_init = out}),
    cross_attn = nn.CrossAttention(scope, "cross_attn", D, {heads = c.num_heads, proj_init = out}),
    mlp = nn.Mlp(scope, "mlp", D, blocks.mlp_width(c), D, {fc2_init = out}),
  }, Block)
end

--- The n rows of a modulation as n values [B, T, D].
---@param name string      name of the parameter [n, D] to which the rows are added
---@param n integer
---@param rows mr.Value    [B, n, D]
---@param rows0 mr.Value|nil   the rows of time 0, for frames whose mask is false
---@param x_mask mr.Value|nil  bool [B, T]
---@param ranks mr.Split       each rank continues from them with its own tokens
---@return mr.Value[]
function blocks.modulation(g, name, n, rows, rows0, x_mask, B, frames, D, ranks)
  local function per_frame(r)
    return nn.spread(ranks:shared(g, g:param(name) + r), {0, 2, 3}, {B, frames, n, D})
  end
  local all = per_frame(rows)
  if x_mask then
    all = (ops.where(nn.spread(x_mask, {0, 1}, {B, frames, n, D}), all, per_frame(rows0)))
  end
  local out = {}
  for i, value in ipairs{all:split(2, n)} do
    out[i] = value:reshape{B, frames, D}
  end
  return out
end

--- Adds the nodes of a block.
---@param x mr.Value  [B, T, S, D]
---@param io table    t_mlp, t0_mlp, x_mask: of modulations; rope: rotation of frames; y, text_len;
---   tap(name, value); sequence: ranks that share S, tokens: S over all of them; here: tokens of S
---   of which ranks that share layers have shares
---@return mr.Value   in the shape of x
function Block:forward(g, x, io)
  local B, frames = x.shape[1], x.shape[2]
  local m = blocks.modulation(g, self.table, 6, io.t_mlp, io.t0_mlp, io.x_mask, B, frames,
    self.width, self.split)
  local a = self.attn(g, (ops.layer_norm_modulate(x, m[1], m[2])),
    {temporal = self.temporal, rope = self.temporal and io.rope or nil, sequence = io.sequence,
      tokens = io.tokens, here = io.here})
  io.tap(self.name .. ".attn", a)
  x = (ops.gated_residual(x, m[3], a))
  local c = self.cross_attn(g, x, io.y, io.text_len, io.here)
  io.tap(self.name .. ".cross_attn", c)
  x = x + c
  x = (ops.gated_residual(x, m[6], self.mlp(g, (ops.layer_norm_modulate(x, m[4], m[5])), io.here)))
  io.tap(self.name, x)
  return x
end

return blocks
