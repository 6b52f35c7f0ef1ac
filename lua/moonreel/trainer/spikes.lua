--- Spikes: a gradient norm above its running median for several steps in a row, or far above it
-- once; a loss far above those of its own group of (resolution, length, noise). The statistics are
-- part of a checkpoint, and every rank has the same. So all ranks decide the same, and a resumed
-- run decides as one that was never interrupted. Ref: reference reliability, section 5.
-- @module moonreel.trainer.spikes
local spikes = {}

--- Number of noise levels by which losses are grouped.
spikes.LEVELS = 4

-- largest and least number of norms for the median; then the losses of a group that form its mean,
-- and the least weight of a new loss in it
local NORMS <const>, NORMS_LEAST <const> = 100, 20
local LOSSES_LEAST <const>, SHARE_LEAST <const> = 30, 1 / 200

-- A single norm is a spike above the norm limit with this power of the factor. The loss of a new
-- group is a spike above this many times the limits of all known groups.
local FAR_POWER <const>, STRANGE <const> = 2, 10

---@class mr.Spikes
---@field policy table    action, norm_factor, norm_steps, loss_sigmas
---@field norms number[]  of the last steps, oldest first
---@field above integer   consecutive steps with too large a norm, including this one
---@field groups table    name -> {n, mean, variance} of losses; recent losses have more weight
---@field back integer|nil step of the checkpoint of the last rollback
local Spikes = {}
Spikes.__index = Spikes

--- Starts the statistics of a run's norms and losses.
---@param policy table     settings.spike
---@param known table|nil  from Spikes:state, as a manifest has it
---@return mr.Spikes
function spikes.new(policy, known)
  known = known or {}
  return setmetatable({ policy = policy, norms = known.norms or {}, above = known.above or 0,
    groups = known.groups or {}, back = known.back }, Spikes)
end

--- The statistics for a checkpoint.
---@return table
function Spikes:state()
  return { norms = #self.norms > 0 and self.norms or nil, above = self.above,
    groups = next(self.groups) and self.groups or nil, back = self.back }
end

--- The noise level of a micro-batch, from 0.
---@param t number  its mean time, from 0 (clean) to `of` (noise); a NaN has level 0
---@param of number
---@return integer
function spikes.level(t, of)
  return t == t and math.min(math.floor(spikes.LEVELS * t / of), spikes.LEVELS - 1) or 0
end

local function median(list)
  local sorted = table.move(list, 1, #list, 1, {})
  table.sort(sorted)
  local n = #sorted
  return (sorted[(n + 1) // 2] + sorted[n // 2 + 1]) / 2
end

-- the norm above which a step counts; nil: too few norms are known
local function norm_limit(self)
  return #self.norms >= NORMS_LEAST and self.policy.norm_factor * median(self.norms) or nil
end

-- the norm above which one step alone is a spike; nil: too few norms are known
local function far_limit(self)
  local limit = norm_limit(self)
  return limit and limit * self.policy.norm_factor ^ FAR_POWER
end

-- the limit of a known group
local function limit_of(self, g)
  return g.n >= LOSSES_LEAST and g.mean + self.policy.loss_sigmas * g.variance ^ 0.5 or nil
end

-- the loss above which a micro-batch of a group is a spike; nil: too few losses are known
local function loss_limit(self, group)
  local g = self.groups[group]
  local limit, most = g and limit_of(self, g), nil
  for _, other in pairs(not limit and self.groups or {}) do
    most = math.max(most or 0, limit_of(self, other) or 0)
  end
  return limit or most and most > 0 and STRANGE * most or nil
end

--- Is the update of a spike skipped?
---@return boolean
function Spikes:skips() return self.policy.action == "skip" end

--- The norm above which the next step is a spike; it is lower if the norms before were too large.
-- nil: no norm is.
---@return number|nil
function Spikes:most_norm()
  return self.above + 1 >= self.policy.norm_steps and norm_limit(self) or far_limit(self)
end

--- The first loss that is a spike; nil if there is no such loss.
---@param losses table[]  {group, loss} of micro-batches, in their order; loss: their mean
---@return table|nil      {cause = "loss", value, limit, group, times: sigmas of the policy}
function Spikes:of_losses(losses)
  for _, one in ipairs(losses) do
    local limit = loss_limit(self, one.group)
    if limit and one.loss > limit then
      return { cause = "loss", value = one.loss, limit = limit, group = one.group,
        times = self.policy.loss_sigmas }
    end
  end
end

-- Adds a loss to its group. A spike is added as the limit of the group, so that losses that stay
-- high stop being spikes.
local function add_loss(self, one)
  local g = self.groups[one.group] or { n = 0, mean = 0, variance = 0 }
  local share = math.max(1 / (g.n + 1), SHARE_LEAST)
  local off = math.min(one.loss, loss_limit(self, one.group) or one.loss) - g.mean
  self.groups[one.group] = { n = g.n + 1, mean = g.mean + share * off,
    variance = (1 - share) * (g.variance + share * off * off) }
end

--- Judges a finite step and adds it to the statistics. Returns the spike, if it is one.
---@param norm number|nil  of its gradient; nil if it is not known, because the losses are a spike
---@param losses table[]   as of_losses takes them
---@return table|nil       {cause = "norm" or "loss", value, limit, times; for a loss its group, for
---   a norm steps: number of consecutive steps that were too large}
function Spikes:add(norm, losses)
  local found = self:of_losses(losses)
  local limit, far = norm and norm_limit(self), norm and far_limit(self)
  if norm then
    self.above = limit and norm > limit and self.above + 1 or 0
    self.norms[#self.norms + 1] = norm
    if #self.norms > NORMS then
      table.remove(self.norms, 1)
    end
  end
  for _, one in ipairs(losses) do
    add_loss(self, one)
  end
  local on_end, factor = self.above >= self.policy.norm_steps, self.policy.norm_factor
  if not found and norm and (on_end or far and norm > far) then
    found = { cause = "norm", value = norm, limit = on_end and limit or far, steps = self.above,
      times = on_end and factor or factor ^ (1 + FAR_POWER) }
  end
  return found
end

--- A spike as text.
---@param spike table  from add
---@return string
function spikes.text(spike)
  if spike.cause == "loss" then
    return ("loss %.4g of %s: more than %g sigmas above their mean, %.4g"):format(spike.value,
      spike.group, spike.times, spike.limit)
  end
  return ("gradient norm %.4g: %sabove %g times its median, %.4g"):format(spike.value,
    spike.steps > 1 and ("for %d steps in a row "):format(spike.steps) or "", spike.times,
    spike.limit)
end

return spikes
