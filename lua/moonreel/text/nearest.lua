--- The known name that a mistyped one most likely meant.
-- @module moonreel.text.nearest

-- edit distance with swaps of neighbours, cut off at `limit`
local function distance(a, b, limit)
  if math.abs(#a - #b) > limit then
    return limit + 1
  end
  local before, row = nil, {}
  for j = 0, #b do
    row[j] = j
  end
  for i = 1, #a do
    local above = row
    row = { [0] = i }
    local best = i
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      local cost = math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (same and 0 or 1))
      if before and i > 1 and j > 1 and a:byte(i) == b:byte(j - 1)
          and a:byte(i - 1) == b:byte(j) then
        cost = math.min(cost, before[j - 2] + 1)
      end
      row[j] = cost
      if cost < best then
        best = cost
      end
    end
    if best > limit then
      return limit + 1
    end
    before = above
  end
  return row[#b]
end

--- Nearest of `names` to `name`, or nil when none is near.
---@param name string
---@param names string[]
---@return string|nil
return function(name, names)
  local limit = math.max(1, #name // 3)
  local best, found
  local lower = name:lower():gsub("-", "_")
  for _, other in ipairs(names) do
    local d = distance(lower, other:lower(), limit)
    if d <= limit and (not best or d < best or (d == best and other < found)) then
      best, found = d, other
    end
  end
  return found
end
