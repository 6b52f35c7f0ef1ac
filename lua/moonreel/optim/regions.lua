--- The optimizer's state in addition to the weights: rows of regions, by which the executor
-- allocates memory and checkpoints name tensors. Only this file knows these names and dtypes.
-- Another optimizer needs another function here and its update.
--
-- The fields of a row: name in graphs; dtype; role ("master": weights that `w` is rounded from;
-- "average": begins as a copy of the weights; "weights": takes the place of `w`; else the region
-- begins with zeros); prefix of its tensors in a checkpoint (absent: it is not saved); start and
-- stop (elements of the trained range; absent: all of it); per (trained elements for each of its
-- own; absent: one); space ("pinned": in host memory, and updates bring it to the device piece by
-- piece; absent: on the device); transient (it is in the arena, in the memory that activations
-- leave free).
-- @module moonreel.optim.regions
local options = require "moonreel.text.options"

local regions = {}

local grad = {name = "grad", dtype = "f32"}
local master = {name = "master", dtype = "f32", role = "master", prefix = "master."}
local ema = {name = "ema", dtype = "f32", role = "average", prefix = "ema."}
local adam_m = {name = "adam_m", dtype = "f32", prefix = "adam_m."}
local adam_v = {name = "adam_v", dtype = "f32", prefix = "adam_v."}

-- number of elements that share the scale of an 8-bit moment; a block never spans two parameters.
-- First moments have smaller blocks, because their rounding affects the loss (docs/plan.md).
local FIRST_BLOCK <const>, SECOND_BLOCK <const> = 16, 64

-- a moment as 8-bit codes, one per element, and the scales of blocks
local function coded(row, block)
  local name = row.name .. "8"
  return {name = name, dtype = "u8", prefix = name .. "."},
    {name = name .. "_scale", dtype = "f32", prefix = name .. "_scale.", per = block}
end

local adam_m8, adam_m8_scale = coded(adam_m, FIRST_BLOCK)
local adam_v8, adam_v8_scale = coded(adam_v, SECOND_BLOCK)

--- Every row that a checkpoint may contain, in the order of lists.
regions.saved = {master, ema, adam_m, adam_v, adam_m8, adam_m8_scale, adam_v8, adam_v8_scale}

--- Prefixes by role, for readers of checkpoints that have no optimizer.
regions.prefix = {master = master.prefix, average = ema.prefix}

--- The rows of the first and the second moment in 32 bits.
regions.moments = {adam_m, adam_v}

--- The same in 8 bits, by the name of the moment: rows of codes and of scales, as ops take them.
regions.coded = {
  [adam_m.name] = {codes = adam_m8, scale = adam_m8_scale,
    how = {signed = true, block = FIRST_BLOCK}},
  [adam_v.name] = {codes = adam_v8, scale = adam_v8_scale,
    how = {signed = false, root = true, block = SECOND_BLOCK}},
}

-- the row of gradients; fresh gradients begin at zero in each micro-step
local function gradients(fresh)
  return fresh and {name = grad.name, dtype = grad.dtype, transient = true} or grad
end

--- The rows for gradients only: forward and backward without an update.
---@param fresh boolean|nil  gradients begin at zero in each micro-step, and graphs are built for it
---@return table[] rows
function regions.gradients(fresh)
  return {gradients(fresh)}
end

local read_adamw = options.declare("regions.adamw", {
  { "ema", "boolean", "keep averaged weights, too" },
  { "parts", "table", "{start, stop} elements that this rank owns, bucket by bucket; "
    .. "absent: all" },
  { "gradients", "boolean", "keep only gradients of its parts (ZeRO 2)" },
  { "weights", "boolean", "keep only weights of its parts (ZeRO 3)" },
  { "fresh", "boolean", "gradients begin at zero in each micro-step" },
  { "dtype", "text", "dtype of the weights; f32 weights are also the masters of an owner's parts",
    default = "bf16" },
  { "bits", "integer", "bits of moments, 8 or 32", default = 32 },
  { "space", "text", "pinned: keep the state in host memory; absent: on the device" },
  { "matrices", "integer", "first element without second moments; absent: all have "
    .. "them" },
  { "averaged", "integer", "first element without averages; absent: all have them" },
})

--- The kind of a region, whichever part of the trained range it covers.
---@param name string  name of a region
---@return string      name of its row in this file
function regions.kind(name)
  return (name:gsub("%.%d+$", ""))
end

-- the parts before an element, at which a bucket ends; without parts: everything before it
local function parts_before(element, parts)
  local list = {}
  for _, part in ipairs(parts or {{start = 0, stop = element}}) do
    if part.start < element then
      list[#list + 1] = part
    end
  end
  return list
end

-- Rows over parts of the trained range, or over all of it, in a memory space. The first row of a
-- kind has its name; further rows have a number, too.
local function rows_in(rows, parts, space)
  local out = {}
  for _, row in ipairs(rows) do
    for i, part in ipairs(parts or {{}}) do
      local copy = {start = part.start, stop = part.stop, space = space}
      for key, value in pairs(row) do
        copy[key] = value
      end
      copy.name = i == 1 and row.name or row.name .. "." .. i
      out[#out + 1] = copy
    end
  end
  return out
end

-- the rows of a moment
local function moment(row, bits)
  local in_8 = regions.coded[row.name]
  return bits == 8 and {in_8.codes, in_8.scale} or {row}
end

--- The rows for AdamW, the update of moonreel.optim.
---@param given table|nil  ema: averaged weights, too; parts: the elements that this rank owns, of
---   which it keeps masters, moments and averages; gradients, weights: only of these parts; fresh:
---   gradients begin at zero in each micro-step; dtype: of the weights; bits: of moments, 8 or 32;
---   space: memory of the state; matrices: first element that Muon updates, which keeps no second
---   moment; averaged: first element without an average
---@return table[] rows
function regions.adamw(given)
  local o = read_adamw(given)
  -- checkpoints contain them in this order
  local kept = o.ema and {master, ema} or {master}
  if o.parts and o.dtype == "f32" then
    table.remove(kept, 1)
  end
  local seconds = o.matrices and parts_before(o.matrices, o.parts) or o.parts
  local averaged = o.averaged and parts_before(o.averaged, o.parts) or o.parts
  table.move(moment(adam_m, o.bits), 1, 2, #kept + 1, kept)
  local all = {}
  for _, row in ipairs(kept) do
    local of_row = rows_in({row}, row == ema and averaged or o.parts, o.space)
    table.move(of_row, 1, #of_row, #all + 1, all)
  end
  local second = rows_in(moment(adam_v, o.bits), seconds, o.space)
  table.move(second, 1, #second, #all + 1, all)
  local rows = o.gradients and rows_in({grad}, o.parts) or {gradients(o.fresh)}
  for i, part in ipairs(o.weights and o.parts or {}) do
    rows[#rows + 1] = {name = "w." .. i, dtype = o.dtype, role = "weights", start = part.start,
      stop = part.stop}
  end
  return table.move(all, 1, #all, #rows + 1, rows)
end

--- Do gradients begin at zero in each micro-step? Yes, if a single rank makes a step from one
-- micro-batch: nothing is added to them later, and they are not sent.
---@param team mr.Ranks|nil
---@param micros integer  number of micro-batches of a step
---@return boolean
function regions.fresh(team, micros)
  return not team and micros == 1
end

-- first element of further models, which have no averages; nil: there are no further models
local function first_other(params)
  for _, p in ipairs(params:list()) do
    if p.model > 0 and not p.frozen then
      return p.offset
    end
  end
end

--- The rows for the optimizer of the settings.
---@param settings table   baked
---@param team mr.Ranks|nil  ranks that decide what this rank keeps; nil: it keeps all
---@param dtype string|nil dtype of the weights
---@param fresh boolean|nil  result of regions.fresh
---@param params mr.Params|nil  sealed for the optimizer (moonreel.optim.matrices); nil: without
---   matrices
---@return table[] rows
function regions.of(settings, team, dtype, fresh, params)
  local matrices = params and params:matrices() < params:elements() and params:matrices() or nil
  return regions.adamw{matrices = matrices, averaged = params and first_other(params) or nil,
    ema = settings.optim.ema_decay ~= nil, dtype = dtype, fresh = fresh,
    bits = settings.optim.moment_bits,
    space = settings.optim.offload and "pinned" or nil,
    parts = team and team.stage > 0 and team:owned() or nil,
    gradients = team and team.gradients, weights = team and team.weights}
end

return regions
