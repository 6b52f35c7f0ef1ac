--- Blocks of layers in which each rank has some channels, channels last: [B, T, H, W, C]. Inputs
-- and outputs of a block are complete on every rank. The first layer of a block computes this
-- rank's channels (`split = "outputs"`), inner layers keep them, the last layer sums the
-- contributions of ranks (`split = "inputs"`). Weights are complete on every rank, which uses its
-- part of them. All ranks compute everything outside of blocks, and each rank's gradients there are
-- a part of the sum. Ref: parallelism 7, 8.
-- @module moonreel.nn.channels
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local sequence = require "moonreel.nn.sequence"

local channels = {}

local ROWS <const> = 2 -- the axis along which a result is gathered

---@class mr.Channels
---@field share mr.Shared
local Channels = {}
Channels.__index = Channels

--- The divisors of n next below and next above a number, as text.
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

--- Refuses a number of ranks among which channels cannot be divided, with the nearest possible
-- numbers.
---@param share mr.Shared
---@param counts table[]  {name in the family, n}: each n has to be divisible by the number of ranks
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
    base.raise("MR_E_RECIPE", ("%s = %d: %s is %d, which cannot be divided into %d equal parts; "
      .. "try: %s = %s"):format(share.field, share.ranks, refused[1], refused[2], share.ranks,
      share.field, channels.nearest(all, share.ranks)))
  end
end

--- Applies layers to a clip that is complete on every rank.
---@param share mr.Shared
---@param x mr.Value   [B, T, H, W, C]
---@param layers fun(part: mr.Channels, x: mr.Value): mr.Value
---@return mr.Value
function channels.through(g, share, x, _, layers)
  local function own(v)
    return v:slice(ROWS, sequence.part(v.shape[ROWS + 1], share.ranks, share.at))
  end
  -- gradients of x are parts of a sum here, and those of a result are the same on every rank, so
  -- each rank takes and returns only some rows
  if share.trains then
    x = share:all(g, own(x), ROWS, x.shape[ROWS + 1])
  end
  local y = layers(setmetatable({ share = share }, Channels), x)
  return share.trains and share:gather(g, own(y), ROWS, y.shape[ROWS + 1]) or y
end

--- The number of `n` channels, or groups of channels, on this rank; the number of ranks divides n.
---@param n integer
---@return integer
function Channels:count(n) return n // self.share.ranks end

--- This rank's part of an axis of channels.
---@param x mr.Value           a weight, a bias, or an input of a block
---@param axis integer         from 0
---@param parts integer|nil    number of parts next to each other on the axis, each of which is
---   divided
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

--- The sum over ranks of their contributions: each rank adds up some positions.
---@param x mr.Value           [..., C]
---@param bias mr.Value|false  [C], added once
---@return mr.Value            [..., C], on every rank
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
