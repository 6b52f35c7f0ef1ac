--- Text in the form for a model: [B, L, C] with the tokens in use first, and their number per
-- sample.
-- @module moonreel.models.text
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"

local text = {}

-- reorder rows of [B, L, C]: row i of the result is row order[b][i] (from 1) of x
local function reorder(x, order)
  local B, L, C = x.shape[1], x.shape[2], x.shape[3]
  local from, to, n = x:totable(), {}, 0
  for b = 1, B do
    for i = 1, L do
      local at = ((b - 1) * L + order[b][i] - 1) * C
      table.move(from, at + 1, at + C, n + 1, to)
      n = n + C
    end
  end
  return T.from({B, L, C}, to, x.dtype)
end

--- Moves the tokens whose mask is not zero to the front, in their order. Masks need not be
-- prefixes.
---@param y mr.Tensor      [B, L, C]
---@param mask mr.Tensor   [M, L], B a multiple of M: it is repeated as a whole
---@return mr.Tensor packed
---@return mr.Tensor len    i32 [B]
---@return table|nil order  for unpack; nil if no token was moved
function text.pack(y, mask)
  local B, L, M = y.shape[1], y.shape[2], mask.shape[1]
  if B % M ~= 0 or mask.shape[2] ~= L then
    base.raise("MR_E_SHAPE", string.format("text mask [%d, %d] does not fit text [%d, %d, %d]",
      M, mask.shape[2], B, L, y.shape[3]))
  end
  local flags, order, len, moved = mask:totable(), {}, {}, false
  for b = 1, B do
    local used, unused = {}, {}
    for i = 1, L do
      local flag = flags[(b - 1) % M * L + i]
      local list = flag ~= 0 and flag ~= false and used or unused
      list[#list + 1] = i
    end
    len[b] = #used
    table.move(unused, 1, #unused, #used + 1, used)
    for i = 1, L do
      moved = moved or used[i] ~= i
    end
    order[b] = used
  end
  len = T.from({B}, len, "i32")
  if not moved then
    return y, len
  end
  return reorder(y, order), len, order
end

--- Moves packed tokens back to their places.
---@param y mr.Tensor  [B, L, C]
---@param order table|nil from pack
function text.unpack(y, order)
  if not order then
    return y
  end
  local back = {}
  for b, row in ipairs(order) do
    back[b] = {}
    for i, at in ipairs(row) do
      back[b][at] = i
    end
  end
  return reorder(y, back)
end

return text
