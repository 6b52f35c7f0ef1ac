--- The largest batch that fits.
-- @module moonreel.trainer.largest

--- The largest whole b up to `most` with f(b) <= limit, 0 when there is none; f grows with b and is
-- nearly a line: a chord through the last two points tells where to look, halves where it does not.
---@param f function      of a batch: what it takes
---@param limit number
---@param from integer    where to begin
---@param most integer
---@return integer
return function(f, limit, from, most)
  local low, high, tries = 0, most + 1, 0
  local at, before, value_before = math.max(1, math.min(from, most)), nil, nil
  while high - low > 1 do
    local value = f(at)
    if value <= limit then
      low = at
    else
      high = at
    end
    local guess = (low + high) // 2
    tries = tries + 1
    if not before then
      guess = at * limit / value // 1
    elseif value ~= value_before and tries < 12 then
      guess = at + (limit - value) / (value - value_before) * (at - before) // 1
    end
    before, value_before = at, value
    at = math.tointeger(math.max(low + 1, math.min(high - 1, guess)))
  end
  return low
end
