--- Statistics of many tensors: norms by layer, averages against weights, moments, non-finite
-- values.
-- @module moonreel.ckpt.numbers
local T = require "moonreel.core.tensor"
local coded = require "moonreel.ckpt.coded"
local names = require "moonreel.ckpt.names"
local listing = require "moonreel.text.listing"
local options = require "moonreel.text.options"
local regions = require "moonreel.optim.regions"
local summary = require("moonreel.core.look").summary

local numbers = {}

local norm_of, prefix = names.norm, regions.prefix

--- Norms by layer: of weights, masters, the EMA and the optimizer's moments, if they exist. Reads
-- all.
---@param ckpt mr.Checkpoint
---@param pattern string|nil  of parameter names
function numbers.norms(ckpt, pattern)
  local by_layer, rows, used = {}, {}, {}
  for _, name in ipairs(names.sort(ckpt:names())) do
    local kind, parameter = names.kind(name)
    if not names.is_coded(kind) and #names.matching({ parameter }, pattern) == 1 then
      local layer = names.layer(parameter)
      local row = by_layer[layer]
      if not row then
        row = { layer = layer, parameters = 0, squares = {}, elements = 0 }
        by_layer[layer] = row
        rows[#rows + 1] = row
      end
      local s = ckpt:stats(name)
      used[kind] = true
      row.squares[kind] = (row.squares[kind] or 0) + norm_of(s) ^ 2
      if kind == "weights" then
        row.parameters, row.elements = row.parameters + 1, row.elements + s.n
      end
    end
  end
  local shown = { { key = "layer" }, { key = "parameters", right = true },
    { key = "elements", right = true } }
  for _, kind in ipairs(names.kinds) do
    if used[kind] then
      shown[#shown + 1] = { key = kind, right = true }
    end
  end
  for _, row in ipairs(rows) do
    for kind, sum in pairs(row.squares) do
      row[kind] = math.sqrt(sum)
    end
    row.squares = nil
  end
  return listing.new(rows, shown)
end

-- the distance of two tensors, read as f32 in pieces
local function distance(ckpt, a, b)
  local n, piece, sum, at = T.count(ckpt:info(a).shape), 1 << 18, 0, 0
  while at < n do
    local x, y = T.new("f32", { math.min(piece, n - at) }),
      T.new("f32", { math.min(piece, n - at) })
    ckpt.handle:read_f32(a, x, at)
    ckpt.handle:read_f32(b, y, at)
    local s = summary(x - y)
    sum, at = sum + norm_of(s) ^ 2, at + piece
  end
  return math.sqrt(sum)
end

--- The distance of the averaged weights from the trained ones, by parameter: |ema - w| and relative
-- to |w|. Reads both.
---@param ckpt mr.Checkpoint
---@param pattern string|nil
function numbers.ema_gap(ckpt, pattern)
  local rows = {}
  for _, name in ipairs(names.sort(ckpt:names())) do
    local _, parameter = names.kind(name)
    if name == prefix.average .. parameter and #names.matching({ parameter }, pattern) == 1 then
      local master = prefix.master .. parameter
      local weight = ckpt:info(master) and master or parameter
      if ckpt:info(weight) then
        local gap, size = distance(ckpt, name, weight), norm_of(ckpt:stats(weight))
        rows[#rows + 1] = { name = parameter, gap = gap, relative = size > 0 and gap / size or 0 }
      end
    end
  end
  return listing.new(rows, { { key = "name" }, { key = "gap", right = true },
    { key = "relative", right = true } },
    #rows == 0 and "there are no averaged weights in it" or nil)
end

-- statistics of a moment, in any format
local function moment_stats(ckpt, moment, parameter)
  local info = ckpt:info(moment.prefix .. parameter)
  if info then
    return ckpt:stats(moment.prefix .. parameter)
  end
  local codes = regions.coded[moment.name].codes
  local count = T.count(ckpt:info(codes.prefix .. parameter).shape)
  local numbers_of <close> = coded.decode(ckpt, moment, parameter, 0, count)
  return summary(numbers_of)
end

--- The optimizer's moments by parameter: rms of m, mean of v, and the size of a step m / sqrt(v).
-- Matrices that Muon updates have only m.
---@param ckpt mr.Checkpoint
---@param pattern string|nil
function numbers.moments(ckpt, pattern)
  local rows = {}
  local first, second = table.unpack(regions.moments)
  for _, name in ipairs(names.sort(ckpt:names())) do
    local kind, parameter = names.kind(name)
    local begins = kind == first.name or kind == regions.coded[first.name].codes.name
    if begins and #names.matching({ parameter }, pattern) == 1 then
      local row = { name = parameter, m = moment_stats(ckpt, first, parameter).rms }
      if coded.has(ckpt, second, parameter) then
        row.v = moment_stats(ckpt, second, parameter).mean
        row.step = row.v > 0 and row.m / math.sqrt(row.v) or 0
      end
      rows[#rows + 1] = row
    end
  end
  return listing.new(rows, { { key = "name" }, { key = "m", title = "rms m", right = true },
    { key = "v", title = "mean v", right = true },
    { key = "step", title = "rms m / sqrt(mean v)", right = true } },
      #rows == 0 and "there are no moments in it" or nil)
end

local read_find = options.declare("ckpt:find", {
  { "nonfinite", "boolean", "some values are not finite" },
  { "zeros", "boolean", "all values are zero" },
  { "above", "number", "some absolute values are larger" },
  { "pattern", "text", "only matching names; * matches any text" },
})

--- Tensors with certain values: {nonfinite = true}, {zeros = true} (all zero), {above = x} (|value|
-- > x). Reads all.
---@param ckpt mr.Checkpoint
---@param want table  with pattern = "..." only matching names
function numbers.find(ckpt, want)
  want = read_find(want)
  local rows = {}
  local list = names.matching(names.sort(ckpt:names()), want.pattern)
  for _, name in ipairs(list) do
    local s = ckpt:stats(name)
    local largest = math.max(math.abs(s.min), math.abs(s.max))
    if want.nonfinite and s.nonfinite > 0 or want.zeros and s.zeros == s.n
        or want.above and largest > want.above then
      rows[#rows + 1] = { name = name, n = s.n, nonfinite = s.nonfinite,
        zeros = s.zeros, largest = largest }
    end
  end
  return listing.new(rows, { { key = "name" }, { key = "n", right = true },
    { key = "nonfinite", right = true },
    { key = "zeros", right = true }, { key = "largest", right = true } },
      ("%d of %d tensors"):format(#rows, #list))
end

return numbers
