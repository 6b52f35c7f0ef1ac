--- Searches for the largest batch that fits.
-- @module moonreel.trainer.largest

--- The largest integer b up to `most` with f(b) <= limit, or 0. f grows with b and is nearly
-- linear: the line through the last two points gives the next guess, bisection follows if the guess
-- fails.
---@param f function      the memory or time that a batch needs
---@param limit number
---@param from integer    the first guess
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
