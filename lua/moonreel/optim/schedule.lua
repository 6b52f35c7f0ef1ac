--- Learning rates: the value for optimizer step k = 0, 1, 2, ... (reference opensora-1.2, section
-- 7.3).
-- @module moonreel.optim.schedule
local base = require "moonreel.core.base"

local schedule = {}

local function cosine(from, to, s, n)
  return to + (from - to) / 2 * (math.cos(math.pi * s / n) + 1)
end
local function linear(from, to, s, n) return from + (to - from) * (s / n) end
-- the reference's linear anneal runs from its end value to its start, a saw-tooth; kept under
-- compat
local function backwards(from, to, s, n) return to + (from - to) * (s / n) end

-- each kind: config -> function(k)
local kinds = {}

--- Linear warm-up from initial_lr (0), then constant.
function kinds.constant(c)
  local W, from = c.warmup_steps or 0, c.initial_lr or 0
  return function(k) return k < W and linear(from, c.lr, k + 1, W + 1) or c.lr end
end

--- Rises from min_lr to max_lr over warmup_steps, falls to lr over cooldown_steps, then stays at
-- lr.
kinds["1cycle"] = function(c)
  local U, D = c.warmup_steps or 0, c.cooldown_steps or 0
  local anneal = cosine
  if c.anneal_strategy ~= nil and c.anneal_strategy ~= "cos" then
    anneal = c.compat and backwards or linear
  end
  return function(k)
    if k < U then
      return anneal(c.min_lr, c.max_lr, k, U)
    end
    if k < U + D then
      return anneal(c.max_lr, c.lr, k - U, D)
    end
    return c.lr
  end
end

--- Linear warm-up, then a cosine down to min_lr (0) at total_steps. With compat as in the reference
-- of 2.0: the warm-up ends a step earlier, and after total_steps the rate rises again.
function kinds.cosine(c)
  local W, N = c.warmup_steps or 0, c.total_steps
  local up, last = c.compat and W or W + 1, c.compat and math.huge or N
  return function(k)
    if k < W then
      return c.lr * (k + 1) / up
    end
    return cosine(c.lr, c.min_lr or 0, math.min(k, last) - math.min(W, N), math.max(N - W, 1))
  end
end

--- Creates a schedule.
---@param config table  kind ("constant", "cosine", "1cycle"), lr, warmup_steps, cooldown_steps,
---   initial_lr, min_lr, max_lr, anneal_strategy, total_steps, compat; micro_steps: micro-steps per
---   update, if the schedule counts these
---@return function     k -> learning rate
function schedule.new(config)
  local kind = kinds[config.kind or "constant"]
  if not kind then
    local names = {}
    for name in pairs(kinds) do
      names[#names + 1] = name
    end
    table.sort(names)
    base.raise("MR_E_RECIPE", string.format("lr_schedule is '%s'; expected one of %s",
      tostring(config.kind), table.concat(names, ", ")))
  end
  local at, n = kind(config), config.micro_steps or 1
  return n == 1 and at or function(k) return at(n * k + n - 1) end
end

return schedule
