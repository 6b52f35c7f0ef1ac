--- Blocks of layers in which each rank has some channels, channels last: [B, T, H, W, C]. Inputs
-- and outputs of a block are complete on every rank. A layer that begins a block computes this
-- rank's channels (`split = "outputs"`), inner layers keep them, the layer that ends it sums the
-- contributions of ranks (`split = "inputs"`). Weights are complete on every rank, which uses its
-- part of them. All ranks compute everything outside of blocks alike, and each rank's gradients
-- there are a part of the sum. Ref: parallelism 7, 8.
-- @module moonreel.nn.channels
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local sequence = require "moonreel.nn.sequence"

local channels = {}

local ROWS <const> = 2 -- the axis by which a result is gathered

---@class mr.Channels
---@field share mr.Shared
local Channels = {}
Channels.__index = Channels

--- What divides n next below and next above a number, for people.
---@param n integer
---@param wanted integer
---@return string
function channels.nearest(n, wanted)
  local below, above = 1, nil
  for d = 1, n do
    if n % d == 0 then
      below, above = d < wanted and d or below, above or d > wanted and d or nil
    end
  end
  return above and ("%d or %d"):format(below, above) or tostring(below)
end

--- Refuse ranks among which channels do not fall, with the nearest numbers of them.
---@param share mr.Shared
---@param counts table[]  {what a family calls it, n}: each has to fall into equal parts
function channels.check(share, counts)
  local all, refused = 0, nil
  for _, row in ipairs(counts) do
    local a, b = all, row[2]
    while b > 0 do
      a, b = b, a % b
    end
    all, refused = a, refused or row[2] % share.ranks ~= 0 and row or nil
  end
  if refused then
    base.raise("MR_E_RECIPE", ("%s = %d: %s is %d, which does not fall into %d equal parts; try: "
      .. "%s = %s"):format(share.field, share.ranks, refused[1], refused[2], share.ranks,
      share.field, channels.nearest(all, share.ranks)))
  end
end

--- Layers over a clip, whole on every rank.
---@param share mr.Shared
---@param x mr.Value   [B, T, H, W, C]
---@param layers fun(part: mr.Channels, x: mr.Value): mr.Value
---@return mr.Value
function channels.through(g, share, x, _, layers)
  local function own(v)
    return v:slice(ROWS, sequence.part(v.shape[ROWS + 1], share.ranks, share.at))
  end
  -- gradients of x are parts of a sum here, and those of a result are on every rank alike: each
  -- rank gives and takes some rows
  if share.trains then
    x = share:all(g, own(x), ROWS, x.shape[ROWS + 1])
  end
  local y = layers(setmetatable({ share = share }, Channels), x)
  return share.trains and share:gather(g, own(y), ROWS, y.shape[ROWS + 1]) or y
end

--- How many of `n` channels, or groups of channels, this rank has; ranks divide n.
---@param n integer
---@return integer
function Channels:count(n) return n // self.share.ranks end

--- This rank's part of an axis of channels.
---@param x mr.Value           a weight, a bias, or what a block takes
---@param axis integer         from 0
---@param parts integer|nil    that lie side by side on the axis, each of which is cut
---@return mr.Value
function Channels:own(x, axis, parts)
  parts = parts or 1
  local whole, list = x.shape[axis + 1] // parts, {}
  local n = self:count(whole)
  for i = 1, parts do
    local first = (i - 1) * whole + self.share.at * n
    list[i] = x:slice(axis, first, first + n)
  end
  return parts > 1 and G.concat(list, axis) or list[1]
end

--- The sum over ranks of what each has made of its channels: each rank adds up some positions.
---@param x mr.Value           [..., C]
---@param bias mr.Value|false  [C], added once
---@return mr.Value            likewise, on every rank
function Channels:total(g, x, bias)
  local share, shape = self.share, x.shape
  local C = shape[#shape]
  local n = T.count(shape) // C
  local parts = share:swap(g, x:reshape { 1, n, C }, 1, 0, share.ranks)
  local sum = ops.sum(parts, { axes = { 0 } })
  sum = bias and sum + bias:reshape { 1, C } or sum
  return share:all(g, sum, 0, n):reshape(shape)
end

return channels
