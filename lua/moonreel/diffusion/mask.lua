--- Frame masks of training: which latent frames are given as conditions (reference opensora-1.2,
-- section 3.1). True (1) = noised and counted in the loss; 0 = kept clean.
-- @module moonreel.diffusion.mask
local base = require "moonreel.core.base"

local mask = {}

-- each strategy clears frames of `m` (numbered 1..T) with draws of `d`
local strategies = {
  identity = function() end,
  quarter_random = function(m, T, d)
    local n = d.int(1, T // 4)
    local p = d.int(0, T - n)
    for i = p + 1, p + n do
      m[i] = 0
    end
  end,
  quarter_head = function(m, T, d)
    for i = 1, d.int(1, T // 4) do
      m[i] = 0
    end
  end,
  quarter_tail = function(m, T, d)
    for i = T - d.int(1, T // 4) + 1, T do
      m[i] = 0
    end
  end,
  quarter_head_tail = function(m, T, d)
    local n = d.int(1, T // 4)
    for i = 1, n do
      m[i], m[T - i + 1] = 0, 0
    end
  end,
  image_random = function(m, T, d) m[d.int(0, T - 1) + 1] = 0 end,
  image_head = function(m) m[1] = 0 end,
  image_tail = function(m, T) m[T] = 0 end,
  image_head_tail = function(m, T) m[1], m[T] = 0, 0 end,
  intepolate = function(m, T, d)
    for i = d.int(0, 1) + 1, T, 2 do
      m[i] = 0
    end
  end,
  random = function(m, T, d)
    local ratio, left = d.ratio(), false
    for i = 1, T do
      if d.frame(i - 1) <= ratio then
        m[i] = 0
      else
        left = true
      end
    end
    if not left then
      m[T] = 1
    end
  end,
}

--- Checks and completes a map from strategies to probabilities.
---@param ratios table   ordered list of {name, probability}
---@return table          with identity appended if it was missing
function mask.new(ratios)
  local list, sum, has_identity = {}, 0, false
  local function refuse(...) base.raise("MR_E_RECIPE", "mask_ratios: " .. string.format(...)) end
  for i, row in ipairs(ratios) do
    local name, p = row[1], row[2]
    if not strategies[name] then
      refuse("unknown strategy '%s'", tostring(name))
    end
    if p < 0 or p > 1 then
      refuse("%s has probability %g, expected 0 to 1", name, p)
    end
    list[i], sum = {name, p}, sum + p
    has_identity = has_identity or name == "identity"
  end
  if not has_identity then
    list[#list + 1] = {"identity", 1 - sum}
    if sum > 1 + 1e-6 then
      refuse("probabilities add up to %g, more than 1", sum)
    end
  elseif math.abs(sum - 1) > 1e-6 then
    refuse("probabilities add up to %g, expected 1", sum)
  end
  return list
end

-- the order in which the reference lists strategies and goes through draws
local ORDER = {"random", "intepolate", "quarter_random", "quarter_head",
  "quarter_tail", "quarter_head_tail",
  "image_random", "image_head", "image_tail", "image_head_tail", "identity"}

--- The same from a map, in the reference's order.
---@param map table
---@return table
function mask.from_map(map)
  local list = {}
  for _, name in ipairs(ORDER) do
    if map[name] then
      list[#list + 1] = {name, map[name]}
    end
  end
  return mask.new(list)
end

--- Draws one mask.
---@param list table      from mask.new
---@param T integer        latent frames
---@param d table          draws: unit() in [0, 1); int(lo, hi) inclusive; ratio() in [0.1, 0.9];
---   frame(i) in [0, 1)
---@return table           T numbers, 1 or 0
function mask.draw(list, T, d)
  local u, name, upto = d.unit(), "identity", 0
  for _, row in ipairs(list) do
    upto = upto + row[2]
    if u < upto then
      name = row[1] break
    end
  end
  local m = {}
  for i = 1, T do
    m[i] = 1
  end
  if T <= 1 then
    return m
  end
  -- a quarter of fewer than four frames is empty
  if T < 4 and name:find("^quarter") then
    return m
  end
  strategies[name](m, T, d)
  return m
end

--- The draws of a sample, a pure function of (seed, key, epoch).
function mask.draws(seed, key, epoch)
  local n = 0
  local function unit()
    n = n + 1
    return base.random_uniform(seed, "mask", key, epoch, n - 1)
  end
  return {
    unit = unit,
    int = function(lo, hi) return math.min(hi, lo + math.floor(unit() * (hi - lo + 1))) end,
    ratio = function() return 0.1 + 0.8 * unit() end,
    frame = function() return unit() end,
  }
end

return mask
