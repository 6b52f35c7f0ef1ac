--- What an optimizer keeps in addition to the weights: rows of regions, which the executor
-- allocates by and checkpoints name their tensors by. No other file knows these names and dtypes;
-- another optimizer is another function here and its update.
--
-- A row: name in graphs, dtype, role ("master": weights that `w` is rounded from; "average": begins
-- as the weights; "weights": stands for `w`; else zeros), prefix of its tensors in a checkpoint
-- (absent: not saved), start and stop (elements of the trained range; absent: all of it), per
-- (trained elements for each of its own; absent: one), space ("pinned": in the host's memory, from
-- where updates bring it to the device piece by piece; absent: on the device), transient (it lies
-- in the arena, and takes the room that activations leave).
-- @module moonreel.optim.regions
local options = require "moonreel.text.options"

local regions = {}

local grad = {name = "grad", dtype = "f32"}
local master = {name = "master", dtype = "f32", role = "master", prefix = "master."}
local ema = {name = "ema", dtype = "f32", role = "average", prefix = "ema."}
local adam_m = {name = "adam_m", dtype = "f32", prefix = "adam_m."}
local adam_v = {name = "adam_v", dtype = "f32", prefix = "adam_v."}

-- elements that share the scale of a moment of 8 bits, no two parameters do: first moments are the
-- ones whose rounding shows in the loss (docs/plan.md)
local FIRST_BLOCK <const>, SECOND_BLOCK <const> = 16, 64

-- a moment as codes of 8 bits, an element each, and the scales of blocks of them
local function coded(row, block)
  local name = row.name .. "8"
  return {name = name, dtype = "u8", prefix = name .. "."},
    {name = name .. "_scale", dtype = "f32", prefix = name .. "_scale.", per = block}
end

local adam_m8, adam_m8_scale = coded(adam_m, FIRST_BLOCK)
local adam_v8, adam_v8_scale = coded(adam_v, SECOND_BLOCK)

--- Every row that may be found in a checkpoint, in the order in which lists show them.
regions.saved = {master, ema, adam_m, adam_v, adam_m8, adam_m8_scale, adam_v8, adam_v8_scale}

--- Prefixes by role, for readers of checkpoints that no optimizer is at hand for.
regions.prefix = {master = master.prefix, average = ema.prefix}

--- The rows that hold the first and the second moment in 32 bits.
regions.moments = {adam_m, adam_v}

--- The same in 8 bits, by the name of the moment: rows of codes and of scales; how ops take them.
regions.coded = {
  [adam_m.name] = {codes = adam_m8, scale = adam_m8_scale,
    how = {signed = true, block = FIRST_BLOCK}},
  [adam_v.name] = {codes = adam_v8, scale = adam_v8_scale,
    how = {signed = false, root = true, block = SECOND_BLOCK}},
}

-- the row of gradients; fresh ones begin at zero in each micro-step
local function gradients(fresh)
  return fresh and {name = grad.name, dtype = grad.dtype, transient = true} or grad
end

--- For gradients alone: forward and backward without an update.
---@param fresh boolean|nil  they begin at zero in each micro-step, whose graphs are made so
---@return table[] rows
function regions.gradients(fresh)
  return {gradients(fresh)}
end

local read_adamw = options.declare("regions.adamw", {
  { "ema", "boolean", "averaged weights as well" },
  { "parts", "table", "{start, stop} of the elements that this rank owns, bucket by bucket; "
    .. "absent: all" },
  { "gradients", "boolean", "of its parts alone (ZeRO 2)" },
  { "weights", "boolean", "of its parts alone (ZeRO 3)" },
  { "fresh", "boolean", "gradients begin at zero in each micro-step" },
  { "dtype", "text", "of the weights: those of f32 are the masters of an owner's parts",
    default = "bf16" },
  { "bits", "integer", "of moments, 8 or 32", default = 32 },
  { "space", "text", "pinned: all of it in the host's memory; absent: on the device" },
  { "matrices", "integer", "element from which on there are no second moments; absent: all have "
    .. "them" },
  { "averaged", "integer", "element from which on there are no averages; absent: all have them" },
})

--- What a region is, whatever part of the trained range it covers.
---@param name string  of a region
---@return string      name of its row here
function regions.kind(name)
  return (name:gsub("%.%d+$", ""))
end

-- the parts that lie before an element, buckets end there; without parts all that does
local function parts_before(element, parts)
  local list = {}
  for _, part in ipairs(parts or {{start = 0, stop = element}}) do
    if part.start < element then
      list[#list + 1] = part
    end
  end
  return list
end

-- rows over parts of the trained range, the first of a kind by its name, others by a number too; or
-- over all of it; and in what memory they lie
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

--- For AdamW, the update of moonreel.optim.
---@param given table|nil  ema: averaged weights as well; parts: the elements of which this rank
---   keeps masters, moments and averages, as it owns them; gradients, weights: of these as well;
---   fresh: gradients begin at zero in each micro-step; dtype: of the weights; bits: of moments, 8
---   or 32; space: their memory; matrices: where those begin that Muon updates, which keeps no
---   second moment; averaged: where parameters end that have averages
---@return table[] rows
function regions.adamw(given)
  local o = read_adamw(given)
  -- checkpoints hold them in this order
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

--- Do gradients begin at zero in each micro-step? So it is where a rank alone makes a step of one:
-- nothing is added to them later, nor sent.
---@param team mr.Ranks|nil
---@param micros integer  micro-batches of a step
---@return boolean
function regions.fresh(team, micros)
  return not team and micros == 1
end

-- where the parameters of further models begin, which have no averages; nil: there are none
local function first_other(params)
  for _, p in ipairs(params:list()) do
    if p.model > 0 and not p.frozen then
      return p.offset
    end
  end
end

--- For the optimizer of settings.
---@param settings table   baked
---@param team mr.Ranks|nil  which say what this rank keeps; nil: all
---@param dtype string|nil of the weights
---@param fresh boolean|nil  of regions.fresh
---@param params mr.Params|nil  sealed as the optimizer wants it (moonreel.optim.matrices); nil:
---   without matrices
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
