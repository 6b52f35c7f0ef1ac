--- 8-bit moments in checkpoints: converts codes to 32-bit values and back.
-- @module moonreel.ckpt.coded
local T = require "moonreel.core.tensor"
local cut = require "moonreel.ckpt.cut"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"

local coded = {}

-- by the prefix of a row: its moment, and the result of encode that it has; nil: plain numbers
local parts = {}
for _, moment in ipairs(regions.moments) do
  local of = regions.coded[moment.name]
  parts[moment.prefix] = {moment = moment, of = of}
  parts[of.codes.prefix] = {moment = moment, of = of, result = 1}
  parts[of.scale.prefix] = {moment = moment, of = of, result = 2}
end

-- elements [from, to) of a tensor, each of which stands for `per` numbers
local function slice(source, name, dtype, from, to, per)
  from, to = from // per, (to + per - 1) // per
  local t = T.new(dtype, {to - from})
  local ptr, bytes = t:ptr()
  source:read_slices{{name = name, range = {from, to}, ptr = ptr, bytes = bytes}}
  return t
end

--- Does a checkpoint have a moment of a parameter, in any format?
---@param source mr.Checkpoint
---@param moment table   from regions.moments
---@param parameter string
---@return boolean
function coded.has(source, moment, parameter)
  return (source:info(moment.prefix .. parameter)
    or source:info(regions.coded[moment.name].codes.prefix .. parameter)) ~= nil
end

--- The numbers of a moment that a checkpoint has in 8 bits.
---@param source mr.Checkpoint
---@param moment table   from regions.moments
---@param parameter string
---@param from integer   element, a multiple of the block
---@param to integer     end, not included
---@return mr.Tensor     [to - from] f32
function coded.decode(source, moment, parameter, from, to)
  local of = regions.coded[moment.name]
  local codes <close> = slice(source, of.codes.prefix .. parameter, "u8", from, to, 1)
  local scale <close> = slice(source, of.scale.prefix .. parameter, "f32", from, to, of.how.block)
  return (ops.decode_dynamic8(codes, scale, of.how))
end

-- numbers [from, to) of this rank's part of a parameter, given those of the whole
local function own(p, from, to, numbers)
  if not p.cut then
    return numbers(from, to)
  end
  local whole <close> = numbers(0, T.count(p.shape))
  return cut.take(p, whole:reshape(p.shape)):slice(0, from, to)
end

local function encode(source, moment, p, from, to)
  local how = regions.coded[moment.name].how
  local numbers = own(p, from, to, function(first, last)
    return slice(source, moment.prefix .. p.name, "f32", first, last, 1)
  end)
  local codes <close> = T.new("u8", {to - from})
  local scale <close> = T.new("f32", {(to - from + how.block - 1) // how.block})
  return ops.encode_dynamic8(numbers, codes, scale, how)
end

--- Does a checkpoint have a region's values of a parameter in another format?
---@param source mr.Checkpoint
---@param region table   a row of exec:regions()
---@param parameter string
---@return boolean
function coded.other(source, region, parameter)
  local part = parts[region.prefix]
  return part ~= nil and not source:info(region.prefix .. parameter)
    and coded.has(source, part.moment, parameter)
end

--- The values of a region for a parameter, converted from a checkpoint's other format.
---@param source mr.Checkpoint
---@param region table   a row of exec:regions(), for which coded.other is true
---@param p table        from params:list()
---@param has table      from fill.part
---@return mr.Tensor
function coded.made(source, region, p, has)
  local part, from = parts[region.prefix], has.from * region.per
  local to = math.min(has.to * region.per, p.count)
  if not part.result then
    return own(p, from, to, function(first, last)
      return coded.decode(source, part.moment, p.name, first, last)
    end)
  end
  local made = {encode(source, part.moment, p, from, to)}
  made[3 - part.result]:close()
  return made[part.result]
end

--- A note about moments in another format.
---@param source mr.Checkpoint
---@param params mr.Params
---@param bits integer     bits of the run's moments
---@return string|nil      nil: the checkpoint has them in the run's format
function coded.note(source, params, bits)
  local first = regions.moments[1]
  for _, p in ipairs(params:list()) do
    local plain = source:info(first.prefix .. p.name)
    if coded.has(source, first, p.name) and not plain == (bits == 32) then
      return bits == 8 and ("%s has moments of 32 bits: they are rounded to 8"):format(source.path)
        or ("%s has moments of 8 bits: training continues with 32 bits from these values")
          :format(source.path)
    end
  end
end

return coded
