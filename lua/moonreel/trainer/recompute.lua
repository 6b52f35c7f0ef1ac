--- Chooses how many blocks of each kind recompute, if the recipe leaves that to the run
-- (`grad_ckpt_settings = "auto"`): as few as possible so that a step fits. The kind of block that
-- frees the most bytes per repeated operation comes first. Ref: reference parallelism 13. A choice
-- is false, if nothing is recomputed, or the number of blocks of each kind, as a recipe lists them:
-- {0, 0} repeats only cheap operations.
-- @module moonreel.trainer.recompute
local recompute = {}

--- Choices in the order in which they need less memory, numbered from 0.
---@class mr.Choices
---@field blocks integer[]  of each kind
---@field order integer[]   kinds in the order in which they recompute; computed when needed
---@field size integer      number of the last choice, in which all blocks recompute
local Choices = {}
Choices.__index = Choices

-- the kinds of blocks, by operations for each byte that all blocks of a kind free
local function order_of(blocks, measure)
  local bytes, operations = measure { 0, 0 }
  local list, price = {}, {}
  for kind = 1, #blocks do
    local all = { 0, 0 }
    all[kind] = blocks[kind]
    local less, more = measure(all)
    list[kind], price[kind] = kind, less < bytes and (more - operations) / (bytes - less)
      or math.huge
  end
  table.sort(list, function(a, b) return price[a] < price[b] or price[a] == price[b] and a < b end)
  return list
end

--- Makes the choices of a graph.
---@param blocks integer[]  of each kind
---@param measure fun(choice: integer[]): integer, number  bytes that it needs, operations that it
---   repeats
---@return mr.Choices
function recompute.new(blocks, measure)
  return setmetatable({ blocks = blocks, measure = measure, size = blocks[1] + blocks[2] + 1 },
    Choices)
end

--- The choice with this number.
---@param n integer  from 0 to `size`
---@return integer[]|boolean choice
function Choices:at(n)
  if n == 0 then
    return false
  end
  local choice, left = { 0, 0 }, n - 1
  self.order = self.order or left > 0 and order_of(self.blocks, self.measure) or nil
  for _, kind in ipairs(self.order or {}) do
    choice[kind] = math.min(left, self.blocks[kind])
    left = left - choice[kind]
  end
  return choice
end

--- The first choice that fits; the last one, if no choice fits.
---@param fits fun(choice: integer[]|boolean): boolean
---@return integer[]|boolean choice
---@return integer n
function Choices:first(fits)
  local low, high = 0, self.size
  while low < high do
    -- most runs need no recomputation, so this is tried first
    local at = low == 0 and high == self.size and 0 or (low + high) // 2
    if fits(self:at(at)) then
      high = at
    else
      low = at + 1
    end
  end
  return self:at(low), low
end

--- Operations that a program repeats.
---@param rows table[]  from mr.Program times() or kinds()
---@return number
function recompute.operations(rows)
  local sum = 0
  for _, row in ipairs(rows) do
    sum = sum + (row.again and (row.count or 1) * row.flop or 0)
  end
  return sum
end

--- A choice as text.
---@param choice integer[]|boolean
---@return string
function recompute.text(choice)
  return choice and ("{%d, %d}"):format(choice[1], choice[2]) or "nothing"
end

return recompute
