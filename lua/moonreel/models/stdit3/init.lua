--- STDiT3: pairs of spatial and temporal transformer blocks over latent video, conditioned on time,
-- rate and text. Sizes, names, initialisation and quirks: reference opensora-1.2, section 1.
-- `temporal_pos` is a field of ours. Ref: hpcaitech/Open-Sora v1.2 (bde3c420), model STDiT3.
-- @module moonreel.models.stdit3
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blocks = require "moonreel.models.stdit3.blocks"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local positions = require "moonreel.models.stdit3.positions"
local split = require "moonreel.nn.split"

local stdit3 = {}

--- Fields of the model and their defaults (reference section 1.1).
stdit3.defaults = {
  depth = 28, hidden_size = 1152, num_heads = 16, patch_size = {1, 2, 2}, in_channels = 4,
  caption_channels = 4096, model_max_length = 300, input_sq_size = 512, mlp_ratio = 4.0,
  class_dropout_prob = 0.1, pred_sigma = true, qk_norm = true,
  freeze_y_embedder = false, only_train_temporal = false, compat = false,
}

--- Configurations that only differ in size.
stdit3.sizes = {
  ["STDiT3-XL/2"] = {depth = 28, hidden_size = 1152, num_heads = 16, patch_size = {1, 2, 2}},
  ["STDiT3-3B/2"] = {depth = 28, hidden_size = 1872, num_heads = 26, patch_size = {1, 2, 2}},
}

local Model = {}
Model.__index = Model

local function check(c)
  local function refuse(...) base.raise("MR_E_RECIPE", "model: " .. string.format(...)) end
  if c.hidden_size % c.num_heads ~= 0 then
    refuse("hidden_size %d is not a multiple of num_heads %d", c.hidden_size, c.num_heads)
  end
  if c.hidden_size % 4 ~= 0 then
    refuse("hidden_size %d is not a multiple of 4", c.hidden_size)
  end
  if (c.hidden_size // c.num_heads) % 2 ~= 0 then
    refuse("head size %d is odd, the rotation needs pairs", c.hidden_size // c.num_heads)
  end
  if c.linear == "f8" and (c.hidden_size % 16 ~= 0 or blocks.mlp_width(c) % 16 ~= 0) then
    refuse("linear = f8 needs widths that are multiples of 16; hidden_size is %d, times "
      .. "mlp_ratio %d; try: linear = none", c.hidden_size, blocks.mlp_width(c))
  end
  if c.drop_path and c.drop_path ~= 0 then
    refuse("drop_path = %g: stochastic depth is not supported, because no known recipe uses it"
      .. "; try: drop_path = 0", c.drop_path)
  end
  if c.temporal_pos and c.temporal_pos ~= "sincos" then
    refuse("temporal_pos is '%s', expected sincos or none", tostring(c.temporal_pos))
  end
end

-- fills in missing fields of a configuration
local function complete(config)
  return nn.merged(stdit3.defaults, stdit3.sizes[config.type], config)
end

--- The quantities that ranks which share layers must divide: {name, count}.
---@param config table  as in stdit3.new
---@return table[]
function stdit3.shares(config)
  local c = complete(config)
  return split.of_transformer(c, blocks.mlp_width(c))
end

--- Declares the parameters of a model.
---@param params mr.Params
---@param config table      fields of stdit3.defaults; missing ones take the default
---@param run table|nil     split: ranks that share layers
---@return mr.STDiT3
function stdit3.new(params, config, run)
  local c = complete(config)
  check(c)
  local D, P = c.hidden_size, c.patch_size
  local scope = nn.scope(params, nil, {frozen = c.only_train_temporal})
  local self = setmetatable({config = c, blocks = {}, split = run and run.split or split.none},
    Model)
  self.out_channels = c.pred_sigma and 2 * c.in_channels or c.in_channels
  local volume = P[1] * P[2] * P[3]
  local fan_in = c.in_channels * volume
  local uniform = {kind = "uniform", scale = fan_in ^ -0.5}
  self.x_embedder = nn.Linear(scope, "x_embedder.proj", fan_in, D,
    {shape = {D, c.in_channels, P[1], P[2], P[3]}, init = uniform, bias_init = uniform})
  self.t_embedder = nn.ScalarEmbedder(scope, "t_embedder", D)
  self.fps_embedder = nn.ScalarEmbedder(scope, "fps_embedder", D,
    {first_init = {kind = "normal", scale = 0.02}, second_init = {kind = "zeros"}})
  self.t_block = nn.Linear(scope, "t_block.1", D, 6 * D)
  local y_scope = scope:child("y_embedder", c.freeze_y_embedder and {frozen = true} or nil)
  self.y_embedding = y_scope:add("y_embedding", {c.model_max_length, c.caption_channels},
    {kind = "normal", scale = c.caption_channels ^ -0.5}, {buffer = true, frozen = true})
  self.y_proj = nn.Mlp(y_scope, "y_proj", c.caption_channels, D, D)
  -- released files contain these numbers; the rotation computes them once per shape
  local pairs_of_head = D // c.num_heads // 2
  scope:add("rope.freqs", {pairs_of_head}, {kind = "values",
    values = T.from({pairs_of_head}, positions.frequencies(pairs_of_head))}, {frozen = true})
  for i = 0, c.depth - 1 do
    self.blocks[2 * i + 1] = blocks.new(
      scope:child("spatial_blocks." .. i, {linear = c.linear, split = self.split}), c, false)
    self.blocks[2 * i + 2] = blocks.new(
      scope:child("temporal_blocks." .. i, {frozen = false, linear = c.linear,
        split = self.split}), c, true)
  end
  local final = scope:child("final_layer")
  self.final_table = final:add("scale_shift_table", {2, D}, {kind = "normal", scale = D ^ -0.5})
  self.final_linear = nn.Linear(final, "linear", D, volume * self.out_channels)
  return self
end

--- Token grid of a latent size.
function Model:grid(frames, height, width)
  local P = self.config.patch_size
  return -(-frames // P[1]), -(-height // P[2]), -(-width // P[3])
end

-- The dtype in which it computes, from its first layer. If ranks share weights, reading a later
-- layer would gather its bucket now and delay gradients until the end of the pass.
local function dtype_of(self, g) return g:param(self.x_embedder.weight).dtype end

-- does this run round to bf16 what the reference rounds?
function Model:rounds(g) return self.config.compat and dtype_of(self, g) == "bf16" end

--- The rotation of temporal blocks, for nn.SelfAttention.
function Model:rope(g, frames)
  local d = self.config.hidden_size // self.config.num_heads
  local cos, sin = positions.rotation(g, frames, d, self:rounds(g))
  return {cos = cos, sin = sin}
end

-- rounds half to even, as the reference does
local function round_even(x)
  local r = math.floor(x + 0.5)
  if r - x == 0.5 and r % 2 == 1 then
    r = r - 1
  end
  return r
end

-- position embedding [S, D], and with temporal_pos a table over frames [T, D]
function Model:positions(g, frames, rows, cols, io)
  local D, rounded = self.config.hidden_size, io.rounded
  local scale = positions.scale(io.height, io.width, self.config.input_sq_size, rounded)
  local space = positions.table(g, rows, cols, scale, round_even((rows * cols) ^ 0.5), D,
    rounded)
  io.tap("pos_embed", space)
  if not self.config.temporal_pos then
    return space
  end
  return space, positions.frames(g, frames, D)
end

--- The caption after the drop: rows of the null caption if `drop` is true.
---@param y mr.Value      [B, L, caption_channels]
---@param drop mr.Value   bool [B]
function Model:drop_caption(g, y, drop)
  return (ops.where(nn.spread(drop, {0}, y.shape), self:null_caption(g, y.shape[1], y.shape[2]), y))
end

--- The null caption [B, L, caption_channels].
function Model:null_caption(g, B, L)
  local c = self.config
  if L > c.model_max_length then
    base.raise("MR_E_SHAPE", string.format("text has %d tokens, but the model has only %d; try: "
      .. "model.model_max_length = %d",
      L, c.model_max_length, L))
  end
  local rows = g:param(self.y_embedding):slice(0, 0, L):reshape{1, L, c.caption_channels}
  return rows:expand{B, L, c.caption_channels}
end

-- Adds zero cells below the picture, so that the rows of tokens are a multiple of io.rows: the fork
-- of the reference that trains on several ranks does so (reference section 1.6).
local function pad_rows(g, x, P, rows, multiple)
  local B, C, T_, H, W = table.unpack(x.shape)
  local more = (-rows % multiple) * P[2]
  if more == 0 then
    return x
  end
  local zero = nn.cast(g:const(T.new("f32", {1, 1, 1, 1, 1})), x.dtype)
  return G.concat({x, zero:expand{B, C, T_, more, W}}, 3), H
end

--- Adds the nodes of one forward pass.
---@param g mr.Graph
---@param io table
--   x         [B, in_channels, T, H, W]
--   t, fps    f32 [B]; t 0..1000
--   y         [B, L, caption_channels] (after any drop)
--   text_len  i32 [B] tokens in use, or nil: all
--   x_mask    bool [B, T'] or nil; false frames are clean: they take time 0
--   height, width  pixels, numbers: the position scale
--   recompute(kind, i)  nil or a function: is block i (from 0) of a kind (1 spatial, 2 temporal)
--             recomputed in the backward pass
--   offload   nil or true: what such blocks begin with waits in host memory meanwhile
--   tap(name, value)    nil or a function that sees intermediate values
--   sequence  nil or the ranks that share the cells of a frame (moonreel.nn.sequence): every rank
--             has all of x and gives all of the result
--   rows      nil or what rows of tokens are a multiple of: cells are added below and cut off again
---@return mr.Value  [B, out_channels, T, H, W] in compute dtype
function Model:forward(g, io)
  local D, P = self.config.hidden_size, self.config.patch_size
  local image, height = pad_rows(g, io.x, P, select(2, self:grid(table.unpack(io.x.shape, 3))),
    io.rows or 1)
  local B, frames_in, H, W = image.shape[1], image.shape[3], image.shape[4], image.shape[5]
  local frames, rows, cols = self:grid(frames_in, H, W)
  local function own(x, axis) return io.sequence and io.sequence:cut(x, axis) or x end
  local dtype = dtype_of(self, g)
  local tap = io.tap or function() end
  local inner = {tap = tap, x_mask = io.x_mask, text_len = io.text_len,
    sequence = io.sequence, tokens = rows * cols}
  local rounded = self:rounds(g)
  io = setmetatable({tap = tap, rounded = rounded}, {__index = io})
  if rounded then
    io.t, io.fps = positions.held(io.t, dtype), positions.held(io.fps, dtype)
  end

  -- tokens and positions
  local x = self.x_embedder(g,
    own(ops.patchify(nn.cast(image, dtype), {pt = P[1], ph = P[2], pw = P[3]}), 2))
  tap("x_embedder", x)
  local space, time = self:positions(g, frames, rows, cols, io)
  x = x + own(nn.cast(space, dtype), 0)
  if time then
    x = x + nn.cast(time, dtype):reshape{frames, 1, D}
  end

  -- time and rate; with a frame mask also the modulation of time 0
  local function condition(t, suffix)
    local e = self.t_embedder(g, t, dtype)
    tap("t_embedder" .. suffix, e)
    return e
  end
  local fps = self.fps_embedder(g, io.fps, dtype)
  tap("fps_embedder", fps)
  local t = condition(io.t, "") + fps
  local t_mlp = self.t_block(g, (ops.silu(t)))
  tap("t_block", t_mlp)
  inner.t_mlp = t_mlp:reshape{B, 6, D}
  local t0
  if io.x_mask then
    t0 = condition(g:const(T.new("f32", {B})), "#1") + fps
    local t0_mlp = self.t_block(g, (ops.silu(t0)))
    tap("t_block#1", t0_mlp)
    inner.t0_mlp = t0_mlp:reshape{B, 6, D}
  end

  -- text
  inner.y = self.split:shared(g, self.y_proj(g, nn.cast(io.y, dtype)))
  tap("y_embedder", inner.y)
  inner.rope = self:rope(g, frames)

  inner.here = x.shape[3]
  x = self.split:begin(g, x)
  for i, block in ipairs(self.blocks) do
    local recompute = io.recompute and io.recompute((i - 1) % 2 + 1, (i - 1) // 2) or false
    x = nn.block(g, block.name, recompute, io.offload and {x} or {}, function()
      return block:forward(g, x, inner)
    end)
  end
  x = self.split:finish(g, x, inner.here)
  local out = self:finish(g, x, t, t0, io, {frames_in, H, W})
  return height and out:slice(3, 0, height) or out
end

-- the final modulation, and the projection to the latent
function Model:finish(g, x, t, t0, io, size)
  local x_mask, sequence = io.x_mask, io.sequence
  local D, P, B, frames = self.config.hidden_size, self.config.patch_size, x.shape[1], x.shape[2]
  local function rows(v) return nn.spread(v, {0, 2}, {B, 2, D}) end
  local name, a = self.final_table
  if x_mask and self.config.compat then
    -- the reference normalises the modulated tensor a second time for clean frames
    local m = blocks.modulation(g, name, 2, rows(t), nil, nil, B, frames, D, split.none)
    local m0 = blocks.modulation(g, name, 2, rows(t0), nil, nil, B, frames, D, split.none)
    a = (ops.layer_norm_modulate(x, m[1], m[2]))
    local twice = (ops.layer_norm_modulate(a, m0[1], m0[2]))
    a = (ops.where(nn.spread(x_mask, {0, 1}, a.shape), a, twice))
  else
    local m = blocks.modulation(g, name, 2, rows(t), t0 and rows(t0), x_mask, B, frames, D,
      split.none)
    a = (ops.layer_norm_modulate(x, m[1], m[2]))
  end
  local cells = self.final_linear(g, a)
  if sequence then
    local _, high, wide = self:grid(table.unpack(size))
    cells = sequence:gather(g, cells, 2, high * wide)
  end
  return (ops.unpatchify(cells,
    {pt = P[1], ph = P[2], pw = P[3], dims = {self.out_channels, size[1], size[2], size[3]}}))
end

-- The parameters that Muon updates: matrices of the blocks
stdit3.matrices = {"^spatial_blocks%..*%.weight$", "^temporal_blocks%..*%.weight$"}

return stdit3
