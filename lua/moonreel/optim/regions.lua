--- What an optimizer keeps beside the weights: rows of regions, which the executor allocates by and
-- checkpoints name their tensors by. No other file knows these names and dtypes; another optimizer
-- is another function here and its update.
--
-- A row: name in graphs, dtype, role ("master": weights that `w` is rounded from; "average": begins
-- as the weights; else zeros), prefix of its tensors in a checkpoint (absent: not saved), start and
-- stop (elements of the trained range; absent: all of it), per (trained elements for each of its
-- own; absent: one), space ("pinned": in the host's memory, from where updates bring it to the
-- device piece by piece; absent: on the device).
-- @module moonreel.optim.regions
local options = require "moonreel.text.options"

local regions = {}

local grad = {name = "grad", dtype = "f32"}
local master = {name = "master", dtype = "f32", role = "master", prefix = "master."}
local ema = {name = "ema", dtype = "f32", role = "average", prefix = "ema."}
local adam_m = {name = "adam_m", dtype = "f32", prefix = "adam_m."}
local adam_v = {name = "adam_v", dtype = "f32", prefix = "adam_v."}

--- Every row that may be found in a checkpoint, in the order in which lists show them.
regions.saved = {master, ema, adam_m, adam_v}

--- Prefixes by role, for readers of checkpoints that no optimizer is at hand for.
regions.prefix = {master = master.prefix, average = ema.prefix}

--- The rows that hold the first and the second moment.
regions.moments = {adam_m, adam_v}

--- For gradients alone: forward and backward without an update.
---@return table[] rows
function regions.gradients()
  return {grad}
end

local read_adamw = options.declare("regions.adamw", {
  { "ema", "boolean", "averaged weights as well" },
  { "start", "integer", "of the elements that this rank owns; absent: all" },
  { "stop", "integer", "where they end" },
  { "space", "text", "pinned: all of it in the host's memory; absent: on the device" },
})

-- rows over a part of the trained range, or in other memory
local function rows_in(rows, start, stop, space)
  local out = {}
  for i, row in ipairs(rows) do
    out[i] = {start = start, stop = stop, space = space}
    for key, value in pairs(row) do
      out[i][key] = value
    end
  end
  return out
end

--- For AdamW, the update of moonreel.optim.
---@param given table|nil  ema: averaged weights as well; start, stop: the elements of which this
---   rank keeps masters, moments and averages, as it owns them; space: where they lie
---@return table[] rows
function regions.adamw(given)
  local o = read_adamw(given)
  -- checkpoints hold them in this order
  local kept = o.ema and {master, ema, adam_m, adam_v} or {master, adam_m, adam_v}
  if o.stop or o.space then
    kept = rows_in(kept, o.stop and (o.start or 0), o.stop, o.space)
  end
  return {grad, table.unpack(kept)}
end

--- For the optimizer of settings.
---@param settings table  baked
---@param start integer|nil  of the elements that this rank keeps an optimizer's state of; nil: all
---@param stop integer|nil
---@return table[] rows
function regions.of(settings, start, stop)
  return regions.adamw{ema = settings.optim.ema_decay ~= nil, start = start, stop = stop,
    space = settings.optim.offload and "pinned" or nil}
end

return regions
