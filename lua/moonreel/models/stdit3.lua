--- STDiT3: pairs of spatial and temporal transformer blocks over latent video, conditioned on time,
-- rate and text. Sizes, names, initialisation and quirks: reference opensora-1.2, section 1.
-- `temporal_pos` is a field of ours. Ref: hpcaitech/Open-Sora v1.2 (bde3c420), model STDiT3.
-- @module moonreel.models.stdit3
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

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

-- ---- block ----

local Block = {}
Block.__index = Block

local function new_block(scope, c, temporal)
  -- a fresh temporal block is the identity: its three output projections start at zero
  local out = temporal and {kind = "zeros"} or nil
  local D = c.hidden_size
  return setmetatable({
    temporal = temporal, name = scope.prefix, width = D,
    table = scope:add("scale_shift_table", {6, D}, {kind = "normal", scale = D ^ -0.5}),
    attn = nn.SelfAttention(scope, "attn", D,
      {heads = c.num_heads, qk_norm = c.qk_norm, proj_init = out}),
    cross_attn = nn.CrossAttention(scope, "cross_attn", D, {heads = c.num_heads, proj_init = out}),
    mlp = nn.Mlp(scope, "mlp", D, math.floor(D * c.mlp_ratio), D, {fc2_init = out}),
  }, Block)
end

-- The n rows of a modulation as n values [B, T, D]. Frames whose mask is false take the rows of
-- time 0.
local function modulation(g, name, n, rows, rows0, x_mask, B, frames, D)
  local function per_frame(r) return nn.spread(g:param(name) + r, {0, 2, 3}, {B, frames, n, D}) end
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

function Block:forward(g, x, io)
  local B, frames = x.shape[1], x.shape[2]
  local m = modulation(g, self.table, 6, io.t_mlp, io.t0_mlp, io.x_mask, B, frames, self.width)
  local a = self.attn(g, (ops.layer_norm_modulate(x, m[1], m[2])),
    {temporal = self.temporal, rope = self.temporal and io.rope or nil})
  io.tap(self.name .. ".attn", a)
  x = (ops.gated_residual(x, m[3], a))
  local c = self.cross_attn(g, x, io.y, io.text_len)
  io.tap(self.name .. ".cross_attn", c)
  x = x + c
  x = (ops.gated_residual(x, m[6], self.mlp(g, (ops.layer_norm_modulate(x, m[4], m[5])))))
  io.tap(self.name, x)
  return x
end

-- ---- model ----

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
  if c.temporal_pos and c.temporal_pos ~= "sincos" then
    refuse("temporal_pos is '%s', expected sincos or none", tostring(c.temporal_pos))
  end
end

--- Declare the parameters of a model.
---@param params mr.Params
---@param config table      fields of stdit3.defaults; missing ones take the default
---@param prefix string|nil  of the parameter names; released models have none
---@return mr.STDiT3
function stdit3.new(params, config, prefix)
  local c = {}
  for k, v in pairs(stdit3.defaults) do
    c[k] = v
  end
  for k, v in pairs(stdit3.sizes[config.type] or {}) do
    c[k] = v
  end
  for k, v in pairs(config) do
    c[k] = v
  end
  check(c)
  local D, P = c.hidden_size, c.patch_size
  local scope = nn.scope(params, prefix, {frozen = c.only_train_temporal})
  local self = setmetatable({config = c, blocks = {}}, Model)
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
  -- released files hold these numbers; the rotation computes them once per shape
  local pairs_of_head = D // c.num_heads // 2
  scope:add("rope.freqs", {pairs_of_head}, {kind = "values",
    values = T.from({pairs_of_head}, stdit3.frequencies(pairs_of_head))}, {frozen = true})
  for i = 0, c.depth - 1 do
    self.blocks[2 * i + 1] = new_block(scope:child("spatial_blocks." .. i), c, false)
    self.blocks[2 * i + 2] = new_block(scope:child("temporal_blocks." .. i, {frozen = false}),
      c, true)
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

-- ---- positions ----
-- The reference holds sizes, frequencies and angles in the compute dtype (reference section 1.5).
-- Under compat a bf16 model does the same; `rounded` below says so.

-- round half to even, as the reference does
local function round_even(x)
  local r = math.floor(x + 0.5)
  if r - x == 0.5 and r % 2 == 1 then
    r = r - 1
  end
  return r
end

--- The falling frequencies 10000^(-k / n) of a sinusoid, k = 0 .. n - 1.
---@param n integer
---@param rounded boolean|nil  to bf16
---@return number[]
function stdit3.frequencies(n, rounded)
  local list = {}
  for k = 0, n - 1 do
    local f = 10000.0 ^ (-k / n)
    list[k + 1] = rounded and nn.round_bf16(f) or f
  end
  return list
end

-- the value as a dtype holds it, in f32
local function held(x, dtype) return nn.cast(nn.cast(x, dtype), "f32") end

-- Sinusoids [#at, dim] of positions. Options: sin_first; rounded: frequencies are bf16;
-- round_angles: then angles are, too.
local function waves(g, at, dim, options)
  local n, half = #at, dim // 2
  if not options.rounded then
    return (ops.sincos(g:const(T.from({n}, at)), {dim = dim, sin_first = options.sin_first}))
  end
  local function spread(list, axis)
    return nn.spread(g:const(T.from({#list}, list)), {axis}, {n, half})
  end
  local angles = spread(at, 0) * spread(stdit3.frequencies(half, true), 1)
  if options.round_angles then
    angles = held(angles, "bf16")
  end
  -- the wave of the first of two frequencies is that of the angle itself
  local wave = ops.sincos(angles:reshape{n * half}, {dim = 2, sin_first = options.sin_first})
  return wave:reshape{n, half, 2}:permute{0, 2, 1}:reshape{n, dim}
end

--- Scale of the position table: 1 for the size that the model was made for.
---@param height number  pixels
---@param width number
---@param input_sq_size number
---@param rounded boolean|nil  sizes are bf16
function stdit3.position_scale(height, width, input_sq_size, rounded)
  if rounded then
    height, width = nn.round_bf16(height), nn.round_bf16(width)
  end
  return (height * width) ^ 0.5 / input_sq_size
end

--- Position table [H' W', D] of a token grid: the column's sinusoid first, then the row's.
---@param g mr.Graph
---@param rows integer      H'
---@param cols integer      W'
---@param scale number      of stdit3.position_scale
---@param base_size number
---@param D integer
---@param rounded boolean|nil  frequencies are bf16
function stdit3.position_table(g, rows, cols, scale, base_size, D, rounded)
  local r, c = {}, {}
  for i = 0, rows * cols - 1 do
    r[i + 1] = (i // cols) / scale * (base_size / rows)
    c[i + 1] = (i % cols) / scale * (base_size / cols)
  end
  local options = {sin_first = true, rounded = rounded}
  return G.concat({waves(g, c, D // 2, options), waves(g, r, D // 2, options)}, 1)
end

--- Cosines and sines [frames, d/2] of the rotation of each frame.
---@param d integer            width of a head
---@param rounded boolean|nil  frequencies, angles, cosines and sines are bf16
---@return mr.Value cos, mr.Value sin   f32
function stdit3.rotation(g, frames, d, rounded)
  local at = {}
  for i = 0, frames - 1 do
    at[i + 1] = i
  end
  local both = waves(g, at, d, {rounded = rounded, round_angles = true})
  if rounded then
    both = held(both, "bf16")
  end
  return both:slice(1, 0, d // 2), both:slice(1, d // 2, d)
end

-- whether this run holds in bf16 what the reference holds so
function Model:rounds(g)
  return self.config.compat and g:param(self.final_table).dtype == "bf16"
end

--- The rotation of temporal blocks, as nn.SelfAttention takes it.
function Model:rope(g, frames)
  local d = self.config.hidden_size // self.config.num_heads
  local cos, sin = stdit3.rotation(g, frames, d, self:rounds(g))
  return {cos = cos, sin = sin}
end

-- position embedding [S, D], and with temporal_pos a table over frames [T, D]
function Model:positions(g, frames, rows, cols, io)
  local D, rounded = self.config.hidden_size, io.rounded
  local scale = stdit3.position_scale(io.height, io.width, self.config.input_sq_size, rounded)
  local space = stdit3.position_table(g, rows, cols, scale, round_even((rows * cols) ^ 0.5), D,
    rounded)
  io.tap("pos_embed", space)
  if not self.config.temporal_pos then
    return space
  end
  local at = {}
  for i = 0, frames - 1 do
    at[i + 1] = i * 8 / frames
  end
  return space, waves(g, at, D, {sin_first = true})
end

--- The caption after the drop: rows of the null caption where `drop` is true.
---@param y mr.Value      [B, L, caption_channels]
---@param drop mr.Value   bool [B]
function Model:drop_caption(g, y, drop)
  return (ops.where(nn.spread(drop, {0}, y.shape), self:null_caption(g, y.shape[1], y.shape[2]), y))
end

--- The null caption [B, L, caption_channels].
function Model:null_caption(g, B, L)
  local c = self.config
  if L > c.model_max_length then
    base.raise("MR_E_SHAPE", string.format("text has %d tokens, the model knows %d; try: "
      .. "model.model_max_length = %d",
      L, c.model_max_length, L))
  end
  local rows = g:param(self.y_embedding):slice(0, 0, L):reshape{1, L, c.caption_channels}
  return rows:expand{B, L, c.caption_channels}
end

--- Add the nodes of one forward pass.
---@param g mr.Graph
---@param io table
--   x         [B, in_channels, T, H, W]
--   t, fps    f32 [B]; t 0..1000
--   y         [B, L, caption_channels] (after any drop)
--   text_len  i32 [B] tokens in use, or nil: all
--   x_mask    bool [B, T'] or nil; false frames are clean: they take time 0
--   height, width  pixels, numbers: the position scale
--   recompute(i, name)  nil or a function: is block i (from 0) recomputed in the backward pass
--   tap(name, value)    nil or a function that sees intermediate values
---@return mr.Value  [B, out_channels, T, H, W] in compute dtype
function Model:forward(g, io)
  local D, P = self.config.hidden_size, self.config.patch_size
  local B, frames_in, H, W = io.x.shape[1], io.x.shape[3], io.x.shape[4], io.x.shape[5]
  local frames, rows, cols = self:grid(frames_in, H, W)
  local dtype = g:param(self.final_table).dtype
  local tap = io.tap or function() end
  local inner = {tap = tap, x_mask = io.x_mask, text_len = io.text_len}
  local rounded = self:rounds(g)
  io = setmetatable({tap = tap, rounded = rounded}, {__index = io})
  if rounded then
    io.t, io.fps = held(io.t, dtype), held(io.fps, dtype)
  end

  -- tokens and positions
  local x = self.x_embedder(g,
    (ops.patchify(nn.cast(io.x, dtype), {pt = P[1], ph = P[2], pw = P[3]})))
  tap("x_embedder", x)
  local space, time = self:positions(g, frames, rows, cols, io)
  x = x + nn.cast(space, dtype)
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
  inner.y = self.y_proj(g, nn.cast(io.y, dtype))
  tap("y_embedder", inner.y)
  inner.rope = self:rope(g, frames)

  for i, block in ipairs(self.blocks) do
    local recompute = io.recompute and io.recompute(i - 1, block.name) or false
    x = g:block(block.name, recompute, function() return block:forward(g, x, inner) end)
  end
  return self:finish(g, x, t, t0, io.x_mask, {frames_in, H, W})
end

-- final modulation, projection to pixels of the latent
function Model:finish(g, x, t, t0, x_mask, size)
  local D, P, B, frames = self.config.hidden_size, self.config.patch_size, x.shape[1], x.shape[2]
  local function rows(v) return nn.spread(v, {0, 2}, {B, 2, D}) end
  local name, a = self.final_table
  if x_mask and self.config.compat then
    -- the reference normalises the modulated tensor a second time for clean frames
    local m = modulation(g, name, 2, rows(t), nil, nil, B, frames, D)
    local m0 = modulation(g, name, 2, rows(t0), nil, nil, B, frames, D)
    a = (ops.layer_norm_modulate(x, m[1], m[2]))
    local twice = (ops.layer_norm_modulate(a, m0[1], m0[2]))
    a = (ops.where(nn.spread(x_mask, {0, 1}, a.shape), a, twice))
  else
    local m = modulation(g, name, 2, rows(t), t0 and rows(t0), x_mask, B, frames, D)
    a = (ops.layer_norm_modulate(x, m[1], m[2]))
  end
  return (ops.unpatchify(self.final_linear(g, a),
    {pt = P[1], ph = P[2], pw = P[3], dims = {self.out_channels, size[1], size[2], size[3]}}))
end

return stdit3
