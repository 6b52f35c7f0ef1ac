--- Closed forms of the two published models: operations, memory and seconds of a training step.
-- They check graphs and layouts, and reproduce runs whose graphs are not available. The letters are
-- those of the reference: B samples, N image tokens, L text tokens, h width. Ref: reference plan 2
-- to 5.
-- @module moonreel.plan.closed
local closed = {}

local MI = 2 ^ 20

--- Sizes of a diffusion transformer.
---@class moonreel.plan.Sizes
---@field width integer
---@field parameters number
---@field blocks integer

-- ---- MMDiT of Open-Sora 2.0

--- 19 double and 38 single blocks over one sequence of text and image.
closed.mmdit = { width = 3072, double = 19, single = 38, blocks = 57, text = 512,
  parameters = 11.888e9 }

-- operations of a Hunyuan autoencoder for one clip of 256 x 256, by frames; of T5-XXL for a caption
local ENCODE_256 = { [1] = 0.81e12, [33] = 20.0e12, [65] = 39.5e12, [97] = 59.2e12,
  [129] = 79.2e12 }
local TILES_768 = 1.78          -- work of 16 overlapping tiles, divided by that of the whole
local CAPTION = 2 * 4.76e9 * 512
local ATTENTION = 550 / 621      -- of a machine's rate, forward and backward, at these lengths

--- A bucket of the MMDiT.
---@param side integer    of the square in pixels: 256, 768, 1024
---@param frames integer
---@param batch integer
---@param options table|nil  sequence: ranks that share a sample (1); recomputed: blocks (0)
---@return table shape  {tokens of one sample, batch, share of a rank, recomputed share, ...}
function closed.mmdit_shape(side, frames, batch, options)
  options = options or {}
  local latent = 1 + (frames - 1) // 4
  return { model = closed.mmdit, side = side, frames = frames, batch = batch,
    tokens = latent * (side // 16) ^ 2 + closed.mmdit.text,
    ranks = options.sequence or 1, recomputed = options.recomputed or { double = 0, single = 0 } }
end

-- forward operations of one rank: products, attention
local function mmdit_forward(s)
  local m = s.model
  return 24 * m.width ^ 2 * s.batch * s.tokens * m.blocks / s.ranks,
    4 * s.batch * s.tokens ^ 2 * m.width * m.blocks / s.ranks
end

--- Operations of a training step on one rank.
---@param s table  shape
---@return number model     forward and backward, the operations for a share of the peak
---@return number products  with recomputation
---@return number attention with recomputation; its backward pass repeats a part of the forward pass
function closed.mmdit_operations(s)
  local products, attention = mmdit_forward(s)
  local again = (s.recomputed.double + s.recomputed.single) / s.model.blocks
  return 3 * (products + attention), products * (3 + again), attention * (1 + 2.5 + again)
end

--- Bytes of a rank at the peak of a step, with ZeRO 2 over `ranks` GPUs.
---@param s table
---@param ranks integer
---@return number
function closed.mmdit_bytes(s, ranks)
  local m, tokens = s.model, s.batch * s.tokens / s.ranks
  local kept = (m.double - s.recomputed.double) * 46 + (m.single - s.recomputed.single) * 38
    + (s.recomputed.double + s.recomputed.single) * 2
  local again = s.recomputed.double > 0 and 2 * 46 or s.recomputed.single > 0 and 2 * 38 or 0
  local state = 2 * m.parameters + (2 + 12 + 4) * m.parameters / ranks + 2 * 2 * 128 * MI
  return state + (kept + again) * m.width * tokens + 10e9
end

--- Seconds of a step by part, from the rates of a machine.
---@param s table
---@param m table  machine
---@param options table|nil  cached: text and video come from a cache; shared: the ranks of a
---   sequence share the encoding
---@return table  {products, attention, encode, text, stream, fixed, total}
function closed.mmdit_seconds(s, m, options)
  options = options or {}
  local _, products, attention = closed.mmdit_operations(s)
  local again = (s.recomputed.double + s.recomputed.single) / s.model.blocks
  local pixels = (s.side / 256) ^ 2 * (s.side >= 768 and TILES_768 or 1)
  local encode = s.batch * ENCODE_256[s.frames] * pixels / (options.shared and s.ranks or 1)
  local t = { products = products / m.rate.product,
    attention = attention / (ATTENTION * m.rate.attention),
    encode = options.cached and 0 or encode / m.rate.convolution,
    text = options.cached and 0 or s.batch * CAPTION / m.rate.text,
    stream = 40 * s.model.width * s.batch * s.tokens / s.ranks * s.model.blocks * (3 + again)
      / (m.rate.stream * m.peak.memory),
    fixed = 0.15 }
  t.total = t.products + t.attention + t.encode + t.text + t.stream + t.fixed
  return t
end

-- ---- STDiT3 of Open-Sora 1.2

--- 28 pairs of a spatial and a temporal block, text of at most 300 tokens by cross attention.
closed.stdit3 = { width = 1152, pairs = 28, blocks = 56, text = 300, parameters = 1.2076e9 }

--- A bucket of STDiT3.
---@param height integer
---@param width integer
---@param frames integer  1 or a multiple of 17
---@param batch integer
---@return table shape
function closed.stdit3_shape(height, width, frames, batch)
  local t = frames == 1 and 1 or 5 * (frames // 17)
  local space = math.ceil(height / 16) * math.ceil(width / 16)
  return { model = closed.stdit3, batch = batch, t = t, space = space, tokens = t * space }
end

--- Operations of the forward and backward pass, without recomputation.
---@param s table
---@return number
function closed.stdit3_operations(s)
  local m, h = s.model, s.model.width
  local products = m.blocks * (28 * h ^ 2 * s.batch * s.tokens + 4 * h ^ 2 * s.batch * m.text)
  local spatial = m.pairs * 4 * h * s.batch * s.t * s.space ^ 2
  local temporal = m.pairs * 4 * h * s.batch * s.space * s.t ^ 2
  local cross = m.blocks * 4 * s.batch * s.tokens * m.text * h
  return 3 * (products + spatial + temporal + cross)
end

--- Bytes of the block inputs in bf16 that full recomputation keeps.
---@param s table
---@return number
function closed.stdit3_kept(s)
  return 2 * s.model.width * s.model.blocks * s.batch * s.tokens
end

--- Additional bytes of eager kernels while a block is recomputed, which fused kernels do not need:
-- the normed tokens, two widths, and the gradient of the result of GELU, four.
---@param s table
---@return number
function closed.fused(s)
  return 2 * (2 + 4) * s.model.width * s.batch * s.tokens
end

--- Bytes of a token in bf16 that blocks keep without recomputation.
---@param width integer
---@param eager number  bytes that eager kernels keep, in widths
---@param norms number  number of norms in these, whose normed tokens a modulating kernel does not
---   keep
---@return number
function closed.kept(width, eager, norms)
  return width * (eager - 2 * norms)
end

-- ---- the text encoder of Open-Sora 1.2

--- T5 v1.1 XXL, its encoder: 24 layers of width 4096, feed-forward 10240, 32,128 rows of text.
closed.t5 = { parameters = 24 * (4 * 4096 ^ 2 + 3 * 4096 * 10240 + 2 * 4096) + 32128 * 4096 + 4096
  + 32 * 64,
  -- parameters in products: all but the table of words, biases and norms
  products = 24 * (4 * 4096 ^ 2 + 3 * 4096 * 10240) }

return closed
