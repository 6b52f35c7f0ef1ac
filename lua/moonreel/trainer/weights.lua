--- Monitors the weights of a run: every few steps, and after the last one of an epoch, the journal
-- gets the statistics of each block by moonreel.optim.weights, and an alarm if a value is outside
-- the usual range.
-- @module moonreel.trainer.weights
local base = require "moonreel.core.base"
local histograms = require "moonreel.optim.histograms"
local optim = require "moonreel.optim"
local optim_weights = require "moonreel.optim.weights"
local packed = require "moonreel.trackers.histograms"

local weights = {}

-- The first updates are not judged: layers that begin at zero grow, and moments have seen few
-- gradients.
weights.unjudged = 100

-- every finite norm is below this
local LARGEST <const> = 0x1.fffffffffffffp+1023

local NAMES <const> = { "norm", "update_ratio", "dead", "ema_drift" }

--- Begins to watch, if the recipe asks for it; begins again, if the update is a new one.
---@param r mr.Run
function weights.open(r)
  if r.settings.weights.every > 0 then
    r.weights = optim_weights.new(r.exec, r.pipe.params, r.ranks, r.since)
    r.alarms, r.norms = r.alarms or {}, r.norms or {}
  end
  if r.settings.weights.histograms > 0 then
    local params, reduce = r.pipe.params, r.ranks and not r.reduced
    r.histograms = { weights = histograms.new(r.exec, params, "master", r.ranks),
      gradients = histograms.new(r.exec, params, "grad", r.ranks, reduce),
      -- if gradients were already summed for a histogram, they are not summed again
      update = reduce and optim.new(r.exec, params, r.ranks, true,
        { rule = r.rule, since = r.since }) or r.update }
  end
end

-- histograms of all ranks, for the journal; a block belongs to one rank or several
local function shared(r, counts)
  local names, flat, all = {}, {}, {}
  for _, p in ipairs(r.pipe.params:list()) do
    local name = optim_weights.block(p.name)
    if not (p.frozen or p.buffer or names[name]) then
      names[#names + 1], names[name] = name, true
    end
  end
  for i, name in ipairs(names) do
    for k = 1, packed.NUMBERS do
      flat[packed.NUMBERS * (i - 1) + k] = counts[name] and counts[name][k] or 0
    end
  end
  flat = r.team:sum(flat)
  for i, name in ipairs(names) do
    all[name] = packed.pack(table.move(flat, packed.NUMBERS * (i - 1) + 1, packed.NUMBERS * i, 1,
      {}))
  end
  return all
end

--- Counts the gradients of a step if it is time, and returns the update that follows.
---@param r mr.Run
---@param sum table  from micros.run
---@return mr.Update
function weights.before_update(r, sum)
  local every = r.settings.weights.histograms
  if not r.histograms or (r.step + 1) % every ~= 0 or sum.weight == 0 then
    return r.update
  end
  r.histograms.of_step = shared(r, r.histograms.gradients:count(1 / sum.weight))
  return r.histograms.update
end

-- writes the histograms of a step whose gradients were counted into the journal
local function write_histograms(r)
  local gradients, list = r.histograms.of_step, {}
  r.histograms.of_step = nil
  for name, short in pairs(shared(r, r.histograms.weights:count(1))) do
    list[("weights/%s/weights"):format(name)] = short
    list[("weights/%s/gradients"):format(name)] = gradients[name]
  end
  if r.team.leads then
    r.journal:append { kind = "histograms", step = r.step, histograms = list,
      wall = base.wall_s() }
  end
end

local function finite(x) return x and x == x and math.abs(x) ~= math.huge end

-- numbers for charts, with the digits of f32
local function scalars_of(facts)
  local scalars = {}
  for _, block in ipairs(facts) do
    for _, name in ipairs(NAMES) do
      scalars[("weights/%s/%s"):format(block.name, name)] = finite(block[name])
        and tonumber(("%.7g"):format(block[name])) or nil
    end
  end
  return scalars
end

-- Compares a value of a block with its limit: value and limit if it is above, or nil. A NaN is
-- above any limit.
local function above(value, limit)
  if value and (value > limit or value ~= value) then
    return value, limit
  end
end

-- cause -> fun(settings, block, norm before): value and limit, if there is an alarm
local causes = {
  norm = function(s, block, before)
    if before == 0 then
      return nil
    end
    return above(block.norm, before and before * s.norm_factor or LARGEST)
  end,
  update = function(s, block) return above(block.update_ratio, s.update_most) end,
  still = function(s, block)
    if block.update_ratio and block.update_ratio < s.update_least then
      return block.update_ratio, s.update_least
    end
  end,
  dead = function(s, block) return above(block.dead, s.dead_most) end,
  ema = function(s, block) return above(block.ema_drift, s.ema_most) end,
}

local ORDER <const> = { "norm", "update", "still", "dead", "ema" }

-- the text about the first block with a cause; then follows the number of other blocks
local words = {
  norm = "the norm of %s is %.4g, more than %.4g",
  update = "an update moves %s by %.3g of its norm, more than %.3g",
  still = "an update moves %s by %.3g of its norm, less than %.3g",
  dead = "%s has %.3g of its units dead, more than %.3g",
  ema = "the average of %s is off by %.3g of its norm, more than %.3g",
}

local function judge(r, cause, facts)
  local found, count
  for _, block in ipairs(facts) do
    local value, limit = causes[cause](r.settings.weights, block, r.norms[block.name])
    if value and block.name ~= "all" then
      count = (count or 0) + 1
      found = found or { block = block.name, value = value, limit = limit }
    end
  end
  if found then
    found.text = words[cause]:format(found.block, found.value, found.limit)
      .. (count > 1 and ("; the same for %d more blocks"):format(count - 1) or "")
  end
  return found
end

-- prints and journals an alarm when it begins and when it ends
local function tell(r, cause, found)
  local was = r.alarms[cause]
  r.alarms[cause] = found and (was or found)
  if (found ~= nil) == (was ~= nil) then
    return
  end
  local line = { kind = "alarm", step = r.step, cause = cause, block = (found or was).block,
    over = not found or nil, text = found and found.text or "over: " .. was.text,
    value = found and finite(found.value) and found.value or nil, wall = base.wall_s(),
    limit = found and finite(found.limit) and found.limit or nil }
  r.journal:append(line)
  r.progress:say(("step %d: alarm %s"):format(r.step, line.text))
end

--- Measures, journals and judges, if it is time; every rank calls this.
---@param r mr.Run  after a step, before the next one
function weights.look(r)
  local s, o = r.settings.weights, r.settings.optim
  if r.histograms and r.histograms.of_step then
    write_histograms(r)
  end
  if not r.weights or r.updates == 0 or not (r.epoch_ends or r.step % s.every == 0) then
    return
  end
  local began = base.now_s()
  local sums = r.team:sum(r.weights:sums { lr = r.lr_at(r.updates - 1), beta1 = o.betas[1],
    beta2 = o.betas[2], eps = o.eps, weight_decay = o.weight_decay, step = r.updates })
  if not r.team.leads then
    return
  end
  local facts = r.weights:facts(sums, o.ema_decay ~= nil)
  r.journal:append { kind = "weight_norms", step = r.step, update = r.updates,
    scalars = scalars_of(facts), time_s = base.now_s() - began, wall = base.wall_s() }
  for _, cause in ipairs(r.updates > weights.unjudged and ORDER or {}) do
    tell(r, cause, judge(r, cause, facts))
  end
  for _, block in ipairs(facts) do
    r.norms[block.name] = block.norm
  end
end

return weights
