--- MMDiT: text tokens and cells of a latent clip in one sequence, modulated by time and a vector of
-- the caption; the model of Flux and of Open-Sora 2.0. Names and initial values: opensora-2.0.md 1.
-- Ref: Esser et al. 2024, arXiv:2403.03206; black-forest-labs/flux; hpcaitech/Open-Sora 7ad6a96.
-- @module moonreel.models.mmdit
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blocks = require "moonreel.models.mmdit.blocks"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local split = require "moonreel.nn.split"
local weights = require "moonreel.models.mmdit.weights"

local mmdit = {}

--- It takes one vector of a caption, and trains along its own flow.
mmdit.takes_vector, mmdit.flow = true, "moonreel.diffusion.shifted"

--- The quantities that ranks which share layers must divide: {name, count}.
---@param c table  fields of fields.lua
---@return table[]
function mmdit.shares(c)
  return split.of_transformer(c, blocks.mlp_width(c))
end

local WAVES <const> = 256 -- values in the sinusoid of a number

local Model = {}
Model.__index = Model

local function refuse(...) base.raise("MR_E_RECIPE", "model: " .. string.format(...)) end

local function check(c)
  if c.hidden_size % c.num_heads ~= 0 then
    refuse("hidden_size %d is not a multiple of num_heads %d", c.hidden_size, c.num_heads)
  end
  local d, sum = c.hidden_size // c.num_heads, 0
  for i, axis in ipairs(c.axes_dim) do
    if axis < 2 or axis % 2 ~= 0 then
      refuse("entry %d of axes_dim is %d; expected an even number of at least 2, the rotation "
        .. "needs pairs", i, axis)
    end
    sum = sum + axis
  end
  if #c.axes_dim ~= 3 or sum ~= d then
    refuse("axes_dim has %d entries with sum %d; expected 3 with sum %d, which is hidden_size %d "
      .. "over num_heads %d", #c.axes_dim, sum, d, c.hidden_size, c.num_heads)
  end
  if c.in_channels % (c.patch_size * c.patch_size) ~= 0 then
    refuse("in_channels is %d; expected a multiple of %d, the cells of a patch", c.in_channels,
      c.patch_size * c.patch_size)
  end
  local most = 2 ^ 24
  if c.mlp_ratio * c.hidden_size < 1 or c.mlp_ratio * c.hidden_size > most then
    refuse("mlp_ratio is %g, which turns %d channels into %g in the MLP; expected 1 to %d; try: "
      .. "mlp_ratio = 4", c.mlp_ratio, c.hidden_size, c.mlp_ratio * c.hidden_size, most)
  end
  if c.linear == "f8" and (c.hidden_size % 16 ~= 0 or blocks.mlp_width(c) % 16 ~= 0) then
    refuse("linear = f8 needs widths that are multiples of 16; hidden_size is %d, times "
      .. "mlp_ratio %d; try: linear = none", c.hidden_size, blocks.mlp_width(c))
  end
end

--- Checks that sizes of the recipe agree with those of the other models of a run.
---@param c table      fields of the model
---@param parts table  channels of a latent cell; width of text; vector: width; nil: there is no
---   vector
function mmdit.agree(c, parts)
  local function same(field, expected, why)
    if c[field] ~= expected then
      base.raise("MR_E_RECIPE", ("model.%s is %d, but %s; try: model.%s = %d"):format(field,
        c[field],
        why, field, expected))
    end
  end
  local cells = c.patch_size * c.patch_size
  same("in_channels", parts.channels * cells, ("the autoencoder gives %d channels and patch_size "
    .. "= %d makes them %d"):format(parts.channels, c.patch_size, parts.channels * cells))
  same("context_in_dim", parts.width, ("the text encoder gives %d"):format(parts.width))
  if not parts.vector then
    base.raise("MR_E_RECIPE", "model.type = flux needs a vector of each caption, but clip is not "
      .. "set; try: clip.type = text_embedder")
  end
  same("vec_in_dim", parts.vector, ("the second text encoder gives %d"):format(parts.vector))
end

-- a product, SiLU, a product
local function embedder(scope, name, inputs, D)
  local s = scope:child(name)
  local first = blocks.linear(s, "in_layer", inputs, D)
  local second = blocks.linear(s, "out_layer", D, D)
  return function(g, x) return second(g, (ops.silu(first(g, x)))) end
end

--- Declares the parameters of a model.
---@param params mr.Params
---@param c table     fields of fields.lua
---@param run table|nil  split: ranks that share layers
---@return mr.MMDiT   map: how files in other forms become its parameters
function mmdit.new(params, c, run)
  check(c)
  local scope, D, p = nn.scope(params), c.hidden_size, c.patch_size
  local self = setmetatable({ config = c, double = {}, single = {},
    out_channels = c.in_channels // (p * p), map = weights.map(c),
    split = run and run.split or split.none }, Model)
  self.img_in = blocks.linear(scope, "img_in", c.in_channels, D)
  if c.cond_embed then
    self.cond_in = nn.Linear(scope, "cond_in", c.in_channels + p * p, D,
      { init = { kind = "zeros" } })
  end
  self.txt_in = blocks.linear(scope, "txt_in", c.context_in_dim, D)
  self.time_in = embedder(scope, "time_in", WAVES, D)
  self.vector_in = embedder(scope, "vector_in", c.vec_in_dim, D)
  self.guidance_in = c.guidance_embed and embedder(scope, "guidance_in", WAVES, D)
  local group = { linear = c.linear, split = self.split }
  for i = 0, c.depth - 1 do
    self.double[i + 1] = blocks.double(scope:child("double_blocks." .. i, group), c)
  end
  for i = 0, c.depth_single_blocks - 1 do
    self.single[i + 1] = blocks.single(scope:child("single_blocks." .. i, group), c)
  end
  local final = scope:child "final_layer"
  self.final_modulation = blocks.linear(final, "adaLN_modulation.1", D, 2 * D)
  self.final_linear = blocks.linear(final, "linear", D, c.in_channels)
  return self
end

--- Token grid of a latent size.
function Model:grid(frames, height, width)
  local p = self.config.patch_size
  return frames, -(-height // p), -(-width // p)
end

--- Its inputs apart from text and time.
---@param size integer[]  of its latents [B, C, T, H, W]
---@return table<string, integer[]>  shapes by the names in forward
function Model:conditions(size)
  local B, C = size[1], size[2]
  return { cond = self.cond_in and { B, 1 + C, table.unpack(size, 3) } or nil,
    guidance = self.guidance_in and { B } or nil }
end

-- The dtype in which it computes, from its first layer.
local function dtype_of(self, g) return g:param(self.img_in.weight).dtype end

-- [B, C, T, H, W] as tokens [B, 1, N, C p p]: channel, row, column inside a patch
local function packed(self, x)
  local p = self.config.patch_size
  local tokens = ops.patchify(x, { pt = 1, ph = p, pw = p })
  local B, frames, cells, width = table.unpack(tokens.shape)
  return tokens:reshape { B, 1, frames * cells, width }
end

-- cosines and sines [L + T H' W', d / 2]; text is at 0 of all axes
local function rotation(self, g, L, grid)
  local c, cos, sin = self.config, {}, {}
  local frames, rows, cols = table.unpack(grid)
  for i, D in ipairs(c.axes_dim) do
    local at = {}
    for k = 1, grid[i] do
      at[k] = k - 1
    end
    local wave = ops.sincos(g:const(T.from({ grid[i] }, at)), { dim = D, max_period = c.theta })
    local function spread(half)
      return nn.spread(half, { i - 1, 3 }, { frames, rows, cols, D // 2 })
        :reshape { frames * rows * cols, D // 2 }
    end
    cos[i], sin[i] = spread(wave:slice(1, 0, D // 2)), spread(wave:slice(1, D // 2, D))
  end
  local still = T.new("f32", { L, c.hidden_size // c.num_heads // 2 })
  return G.concat({ g:const(still + 1), (G.concat(cos, 1)) }, 0),
    G.concat({ g:const(still), (G.concat(sin, 1)) }, 0)
end

-- the sinusoid [B, 1, 256] of a number of each sample, 0 to 1000
local function wave(x, dtype)
  return nn.cast((ops.sincos(x, { dim = WAVES })), dtype):reshape { x.shape[1], 1, WAVES }
end

-- time, guidance and the caption's vector as one [B, 1, D]
local function condition(self, g, io, dtype)
  local vec = self.time_in(g, wave(io.t, dtype))
  if self.guidance_in then
    if not io.guidance then
      base.raise("MR_E_USAGE", "model.guidance_embed is true, but there is no guidance")
    end
    vec = vec + self.guidance_in(g, wave(ops.affine(io.guidance, { scale = 1000 }), dtype))
  elseif io.guidance then
    base.raise("MR_E_USAGE", "there is a guidance for the model, but model.guidance_embed is false")
  end
  return vec + self.vector_in(g, nn.cast(io.vector, dtype))
end

-- cells of the picture, concatenated with those of the condition
local function pictures(self, g, io, dtype)
  local x = self.img_in(g, packed(self, nn.cast(io.x, dtype)))
  if self.cond_in then
    if not io.cond then
      base.raise("MR_E_USAGE", "model.cond_embed is true, but there is no condition")
    end
    x = x + self.cond_in(g, packed(self, nn.cast(io.cond, dtype)))
  elseif io.cond then
    base.raise("MR_E_USAGE", "there is a condition for the model, but model.cond_embed is false")
  end
  return x
end

-- this rank's tokens of text and picture, and their rotation
local function share(sequence, txt, img, inner)
  local L = txt.shape[3]
  local start, stop = sequence:share(inner.tokens)
  local text, cells = sequence:joint(L, img.shape[3])
  inner.cos, inner.sin = inner.cos:slice(0, start, stop), inner.sin:slice(0, start, stop)
  local from = math.min(start, L)
  local first = math.max(start - L, 0)
  return txt:slice(2, from, from + text), img:slice(2, first, first + cells)
end

-- the last layer for the picture's tokens; each rank that shares tokens applies it to its own
local function last(self, g, x, vec, L, inner)
  local shift, scale = self.final_modulation(g, (ops.silu(vec))):split(2, 2)
  local function finish(tokens)
    return self.final_linear(g, (ops.layer_norm_modulate(tokens, shift, scale)))
  end
  if inner.sequence then
    return inner.sequence:gather(g, finish(x), 2, inner.tokens):slice(2, L, inner.tokens)
  end
  return finish(x:slice(2, L, inner.tokens))
end

--- Adds the nodes of one forward pass.
---@param g mr.Graph
---@param io table
--   x         [B, in_channels / patch_size^2, T, H, W]
--   t         f32 [B], 0..1000: 1000 is pure noise
--   y         [B, L, context_in_dim]; all L take part, padding too
--   vector    [B, 1, vec_in_dim]
--   cond      [B, 1 + channels of x, T, H, W]: the mask, then the latent that it leaves; where
--             cond_embed
--   guidance  f32 [B]; where guidance_embed
--   recompute(kind, i)  nil or a function: is block i (from 0) of a kind (1 double, 2 single)
--             recomputed in the backward pass
--   offload   nil or true: what such blocks begin with waits in host memory meanwhile
--   tap(name, value)    nil or a function that sees intermediate values
--   sequence  nil or the ranks that share text and cells, as one sequence (moonreel.nn.sequence):
--             every rank has all that comes in and gives all of the result
---@return mr.Value  like x, in compute dtype
function Model:forward(g, io)
  local B, _, frames, H, W = table.unpack(io.x.shape)
  local p, dtype = self.config.patch_size, dtype_of(self, g)
  local tap = io.tap or function() end
  local img = pictures(self, g, io, dtype)
  tap("img_in", img)
  local vec = condition(self, g, io, dtype)
  tap("vec", vec)
  local L = io.y.shape[2]
  local txt = self.txt_in(g, nn.cast(io.y, dtype):reshape { B, 1, L, io.y.shape[3] })
  tap("txt_in", txt)
  local grid = { self:grid(frames, H, W) }
  local inner = { vec = vec, halves = self.config.use_liger_rope, sequence = io.sequence,
    tokens = L + img.shape[3] }
  inner.cos, inner.sin = rotation(self, g, L, grid)
  if io.sequence then
    txt, img = share(io.sequence, txt, img, inner)
  end
  inner.text, inner.cells = txt.shape[3], img.shape[3]
  inner.vec = self.split:shared(g, vec)
  txt, img = self.split:begin(g, txt), self.split:begin(g, img)
  local function block(one, kind, i, inputs, f)
    return nn.block(g, one.name, io.recompute and io.recompute(kind, i - 1) or false,
      io.offload and inputs or {}, f)
  end
  for i, one in ipairs(self.double) do
    img, txt = block(one, 1, i, { img, txt }, function() return one:forward(g, img, txt, inner) end)
    tap(("double_%d.img"):format(i - 1), img)
    tap(("double_%d.txt"):format(i - 1), txt)
  end
  txt, img = self.split:finish(g, txt, inner.text), self.split:finish(g, img, inner.cells)
  local x = self.split:begin(g, G.concat({ txt, img }, 2))
  for i, one in ipairs(self.single) do
    x = block(one, 2, i, { x }, function() return one:forward(g, x, inner) end)
    tap(("single_%d.x"):format(i - 1), x)
  end
  x = self.split:finish(g, x, inner.text + inner.cells)
  return (ops.unpatchify(last(self, g, x, vec, L, inner):reshape { B, frames, grid[2] * grid[3],
    self.config.in_channels }, { pt = 1, ph = p, pw = p, channel_last = false,
    dims = { self.out_channels, frames, H, W } }))
end

-- The parameters that Muon updates: matrices of the blocks, except linear2, because its rows of
-- hidden_size and mlp_ratio times that cannot be divided into blocks.
mmdit.matrices = { "^double_blocks%..*%.weight$", "^single_blocks%..*modulation%.lin%.weight$",
  "^single_blocks%..*linear1%.weight$", "^single_blocks%..*_proj%.weight$",
  "^single_blocks%..*v_mlp%.weight$" }

return mmdit
