--- How many blocks of each kind recompute where the recipe leaves that to the run
-- (`grad_ckpt_settings = "auto"`): the fewest with which a step fits, those first that free most
-- bytes for the operations that are done again. Ref: reference parallelism 13.
--
-- A choice is false, where nothing is done twice, or the blocks of each kind, as a recipe lists
-- them: {0, 0} repeats only what is cheap.
-- @module moonreel.trainer.recompute
local recompute = {}

--- Choices in the order in which they need less memory, numbered from 0.
---@class mr.Choices
---@field blocks integer[]  of each kind
---@field order integer[]   kinds, that which recomputes first in front; made when it is needed
---@field size integer      number of the last choice, with which all blocks recompute
local Choices = {}
Choices.__index = Choices

-- the kinds of blocks, by operations for each byte that all of a kind free
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

--- The choices of a graph.
---@param blocks integer[]  of each kind
---@param measure fun(choice: integer[]): integer, number  bytes that it takes, operations that it
---   does again
---@return mr.Choices
function recompute.new(blocks, measure)
  return setmetatable({ blocks = blocks, measure = measure, size = blocks[1] + blocks[2] + 1 },
    Choices)
end

--- The choice of a number.
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

--- The first choice that fits; where none does, the last one.
---@param fits fun(choice: integer[]|boolean): boolean
---@return integer[]|boolean choice
---@return integer n
function Choices:first(fits)
  local low, high = 0, self.size
  while low < high do
    -- most runs need nothing of it
    local at = low == 0 and high == self.size and 0 or (low + high) // 2
    if fits(self:at(at)) then
      high = at
    else
      low = at + 1
    end
  end
  return self:at(low), low
end

--- Operations that a program does again.
---@param rows table[]  of mr.Program times() or kinds()
---@return number
function recompute.operations(rows)
  local sum = 0
  for _, row in ipairs(rows) do
    sum = sum + (row.again and (row.count or 1) * row.flop or 0)
  end
  return sum
end

--- A choice in words.
---@param choice integer[]|boolean
---@return string
function recompute.text(choice)
  return choice and ("{%d, %d}"):format(choice[1], choice[2]) or "nothing"
end

return recompute
