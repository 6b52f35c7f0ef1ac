--- A network that distinguishes clips from their reconstructions, patch by patch: convolutions over
-- time, height and width with batch norms. Its parameters are a separate model in the table of the
-- run. Ref: Isola et al. 2017, arXiv:1611.07004; opensora-2.0.md 13.
-- @module moonreel.losses.discriminator
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.core.ckpt"
local listing = require "moonreel.text.listing"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"

local discriminator = {}

--- The prefix of its parameters in the table of a run, and the number of its model there.
discriminator.PREFIX, discriminator.MODEL = "discriminator", 1

local WIDTH <const>, WIDEST <const> = 64, 8 -- channels of the first layer; of the widest for one
local LAYERS <const>, INPUTS <const> = 5, 3
local KEPT <const> = 0.7   -- share of values that dropout keeps
local SLOPE <const> = 0.2  -- slope below zero
local EPS <const> = 1e-5
local MOMENTUM <const> = 0.1
local SPREAD <const> = 0.02 -- standard deviation of the initial weights
local SEED <const> = 0x64697363
local SAME = { 1, 1, 1, 1, 1, 1 }
local MOST <const> = 3e38 -- no limit
local STEEP <const> = 1e20 -- a factor that makes any number but 0 larger than 1

-- the quantile of a standard normal, by bisection: dropout keeps values below it
local function quantile(share)
  local low, high = -10, 10
  -- Ref: Abramowitz & Stegun 1964, 7.1.26
  local function below(x)
    local t = 1 / (1 + 0.3275911 * math.abs(x) / 2 ^ 0.5)
    local erf = 1 - t * (0.254829592 + t * (-0.284496736 + t * (1.421413741
      + t * (-1.453152027 + t * 1.061405429)))) * math.exp(-x * x / 2)
    return 0.5 * (1 + (x < 0 and -erf or erf))
  end
  for _ = 1, 60 do
    local middle = (low + high) / 2
    if below(middle) < share then
      low = middle
    else
      high = middle
    end
  end
  return low
end

-- ---- layers ----

local function conv(s, name, inputs, outputs, stride, bias)
  local own = s:child(name)
  local row = { stride = stride,
    weight = own:add("weight", { outputs, inputs, 3, 3, 3 }, { kind = "normal", scale = SPREAD }) }
  row.bias = bias and own:add("bias", { outputs },
    { kind = "uniform", scale = (27 * inputs) ^ -0.5 })
  return function(g, x)
    return (ops.conv3d(x, g:param(row.weight), row.bias and g:param(row.bias) or false,
      { stride = row.stride, pad = SAME }))
  end
end

-- a batch norm, and the names of its running mean and variance
local function norm(s, name, C)
  local own = s:child(name)
  local around_one = T.new("f32", { C }):fill_normal(SEED, own.prefix) * SPREAD + 1
  return { C = C, weight = own:add("weight", { C }, { kind = "values", values = around_one }),
    bias = own:add("bias", { C }, { kind = "zeros" }) }
end

-- the running statistics of a norm, which are frozen and separate from weights that others load
local function add_running(s, row, name)
  local own, still = s:child(name), { frozen = true, buffer = true }
  row.mean = own:add("running_mean", { row.C }, { kind = "zeros" }, still)
  row.variance = own:add("running_var", { row.C }, { kind = "ones" }, still)
end

-- Normalizes over all positions of a batch. This is a group norm with one channel per group over
-- all positions as one sample.
local function normalised(g, row, x)
  local B, frames, H, W, C = table.unpack(x.shape)
  local all = x:reshape { 1, B * frames, H, W, C }
  local y = ops.group_norm(all, g:param(row.weight), g:param(row.bias),
    { groups = C, eps = EPS })
  local moments = ops.group_moments(g:detach(all), false, { groups = C })
  return y:reshape(x.shape), moments:reshape { C, 3 }
end

local function leaky(x)
  return ops.affine(x, { scale = SLOPE })
    + ops.affine(ops.clamp(x, { low = 0, high = MOST }), { scale = 1 - SLOPE })
end

-- dropout factors by sample: 0, or 1 over the share that is kept
local function mask_of(io, what, shape, kept, limit)
  local noise = ops.random_normal(io.seed, io.keys, io.epoch,
    { purpose = base.name_word("dropout " .. what), dims = { table.unpack(shape, 2) } })
  local inside = ops.affine(noise, { scale = -STEEP, shift = STEEP * limit })
  return (ops.affine(ops.clamp(inside, { low = 0, high = 1 }), { scale = 1 / kept }))
end

local Network = {}
Network.__index = Network

--- Declares the parameters.
---@param config table  input_nc (3), n_layers (5), ndf: channels of the first layer (64), dropout:
---   share of values that is dropped (0.3)
---@return mr.Discriminator
function discriminator.new(params, config)
  local n, width = config.n_layers or LAYERS, config.ndf or WIDTH
  local inputs, kept = config.input_nc or INPUTS, config.dropout and 1 - config.dropout or KEPT
  local s = nn.scope(params, discriminator.PREFIX .. ".main", { model = discriminator.MODEL })
  local self = setmetatable({ first = conv(s, "0", inputs, width, { 2, 2, 2 }, true), blocks = {},
    inputs = inputs, path = config.from_pretrained, kept = kept,
    limit = kept < 1 and quantile(kept) }, Network)
  local C = width
  for i = 1, n do
    local outputs, at = width * math.min(1 << i, WIDEST), 4 * i - 2
    local stride = i == n and { 1, 1, 1 } or i == 1 and { 2, 2, 2 } or { 1, 2, 2 }
    self.blocks[i] = { name = "main." .. at, conv = conv(s, at, C, outputs, stride),
      norm = norm(s, at + 1, outputs) }
    C = outputs
  end
  self.last = conv(s, 4 * n + 2, C, 1, { 1, 1, 1 }, true)
  for i, block in ipairs(self.blocks) do
    add_running(s, block.norm, 4 * i - 1)
  end
  return self
end

--- Judges how real each patch of clips is, with the statistics of this batch.
---@param g mr.Graph
---@param x mr.Value     [B, T, H, W, C] in the dtype of the layers
---@param io table       seed, keys, epoch for the draws of dropout
---@param what string    name of the clips, part of the keys of the draws
---@return mr.Value      f32 [B, patches]
---@return mr.Value      f32 [n, 3]: mean, sum of squared deviations and count for each channel of
---   all batch norms
function Network:forward(g, x, io, what)
  x = leaky(self.first(g, x))
  local all = {}
  for i, block in ipairs(self.blocks) do
    x, all[i] = normalised(g, block.norm, block.conv(g, x))
    x = leaky(x)
    if self.kept < 1 then
      x = x * nn.cast(mask_of(io, what .. " " .. block.name, x.shape, self.kept, self.limit),
        x.dtype)
    end
  end
  x = nn.cast(self.last(g, x), "f32")
  return x:reshape { x.shape[1], T.count(x.shape) // x.shape[1] }, (G.concat(all, 0))
end

--- Judges how real each patch of clips is, with the running statistics and without dropout.
---@param g mr.Graph
---@param x mr.Value     [B, T, H, W, C] in the dtype of the layers
---@return mr.Value      f32 [B, patches]
function Network:judge(g, x)
  x = leaky(self.first(g, x))
  for _, block in ipairs(self.blocks) do
    local row = block.norm
    local function per_channel(name) return g:param(name):reshape { 1, 1, 1, 1, row.C } end
    local deviation = ops.sqrt((ops.affine(per_channel(row.variance), { shift = EPS })))
    x = leaky((block.conv(g, x) - per_channel(row.mean)) / deviation * per_channel(row.weight)
      + per_channel(row.bias))
  end
  x = nn.cast(self.last(g, x), "f32")
  return x:reshape { x.shape[1], T.count(x.shape) // x.shape[1] }
end

--- The number of channels of all batch norms.
---@return integer
function Network:channels()
  local n = 0
  for _, block in ipairs(self.blocks) do
    n = n + block.norm.C
  end
  return n
end

--- Fills the parameters from the file of the recipe, if the recipe names a file.
---@param exec mr.Exec
---@param params mr.Params  parameters of the executor
function Network:load(exec, params)
  if not self.path then
    return
  elseif not base.exists(self.path) then
    base.raise("MR_E_CKPT", ("discriminator.from_pretrained: there is no file '%s'; try: another "
      .. "file, or discriminator.from_pretrained = recipe.none")
      :format(self.path))
  end
  local source <close> = ckpt.open(self.path)
  for _, p in ipairs(params:list()) do
    local name = p.name:match("^" .. discriminator.PREFIX .. "%.(.*)")
    local info = name and source:info(name)
    if name and not (info and table.concat(info.shape, ",") == table.concat(p.shape, ",")) then
      base.raise("MR_E_CKPT", ("discriminator.from_pretrained: %s: tensor '%s' is %s; expected %s")
        :format(self.path, name, info and listing.shape(info.shape) or "missing",
        listing.shape(p.shape)))
    elseif name then
      local t <close> = T.new("f32", p.shape)
      source:read_f32(name, t)
      for _, region in ipairs(p.frozen and { "frozen" } or exec:has "master"
          and { "w", "master" } or { "w" }) do
        exec:set_param(region, p.name, t)
      end
    end
  end
end

--- Updates the running means and variances with moments of batches. Moments that are not finite are
-- ignored.
---@param exec mr.Exec
---@param moments number[]  moments of `forward`, three per channel, of one or more batches
function Network:remember(exec, moments)
  local at, per = 0, 3 * self:channels()
  for _, value in ipairs(moments) do
    if value ~= value or math.abs(value) == math.huge then
      return
    end
  end
  while at < #moments do
    local from = at
    for _, block in ipairs(self.blocks) do
      local row, mean, variance = block.norm, {}, {}
      for c = 1, row.C do
        local m, squares, n = table.unpack(moments, from + 3 * c - 2, from + 3 * c)
        mean[c], variance[c] = m, squares / math.max(n - 1, 1)
      end
      for name, new in pairs { [row.mean] = mean, [row.variance] = variance } do
        local was = exec:param("frozen", name)
        exec:set_param("frozen", name, was:to "f32" * (1 - MOMENTUM)
          + T.from({ row.C }, new) * MOMENTUM)
      end
      from = from + 3 * row.C
    end
    at = at + per
  end
end

return discriminator
