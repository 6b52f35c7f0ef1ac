--- Comparison of results with reference values: the worst error in units of its tolerance is kept.
-- @module spec.golden.runner.check
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"

local check = {}

local Check = {}
Check.__index = Check

function check.new()
  return setmetatable({count = 0, worst = -1, error = 0, tolerance = 0, name = "nothing compared",
    aside = {}}, Check)
end

--- Add one error.
function Check:add(name, err, tolerance)
  self.count = self.count + 1
  local units = err == 0 and 0 or err / tolerance
  if units ~= units then
    units, err = math.huge, math.huge
  end
  if units > self.worst then
    self.worst, self.name, self.error, self.tolerance = units, name, err, tolerance
  end
end

--- A case that cannot be judged, and why; where all are such ones nothing is compared.
function Check:leave(name, why)
  table.insert(self.aside, ("%s: %s"):format(name, why))
end

function Check:passed() return self.count > 0 and self.worst <= 1 end

--- L2 norm of a tensor, and its number of elements.
function check.norm(t)
  local n = T.count(t.shape)
  local flat = t:to("f32"):reshape{n}
  return ops.sum_squares(flat):item() ^ 0.5, n
end

local function same_size(name, got, want)
  local a, b = T.count(got.shape), T.count(want.shape)
  if a ~= b then
    base.raise("MR_E_SHAPE", string.format("%s: %d values came, %d are expected", name, a, b))
  end
  return a
end

-- L2 norm of the difference
local function distance(name, got, want)
  local n = same_size(name, got, want)
  return (check.norm(got:to("f32"):reshape{n} - want:to("f32"):reshape{n}))
end

--- A number of differing elements: none is allowed.
function Check:exact(name, differing)
  self:add(name, differing, 0)
end

--- L2(got - want) / max(L2(want), floor).
function Check:l2(name, got, want, tolerance, floor)
  local d, size = distance(name, got, want), math.max((check.norm(want)), floor or 0)
  self:add(name, size == 0 and (d == 0 and 0 or math.huge) or d / size, tolerance)
end

local function largest(t) return math.max(t:max(), -t:min()) end

--- Largest absolute difference over the largest wanted value.
---@param least number|nil  what it is divided by at the least
function Check:scaled(name, got, want, tolerance, least)
  same_size(name, got, want)
  local unit = 1 / math.max(largest(want), least or 0, 1e-30)
  self:absolute(name, (got * unit):totable(), (want * unit):totable(), tolerance)
end

--- Largest absolute difference of two flat lists.
function Check:absolute(name, got, want, tolerance)
  local worst = #got == #want and 0 or math.huge
  for i, w in ipairs(want) do
    local d = math.abs(got[i] - w)
    if d > worst or d ~= d then
      worst = d ~= d and math.huge or d
    end
  end
  self:add(name, worst, tolerance)
end

--- Largest relative difference of two flat lists; not-a-number must meet not-a-number.
function Check:relative(name, got, want, tolerance)
  local worst = #got == #want and 0 or math.huge
  for i, w in ipairs(want) do
    local g = got[i]
    local d
    if w ~= w then
      d = g ~= g and 0 or math.huge
    else
      d = g == w and 0 or math.abs(g - w) / math.max(math.abs(w), 1e-30)
    end
    if d > worst or d ~= d then
      worst = d ~= d and math.huge or d
    end
  end
  self:add(name, worst, tolerance)
end

--- Gradients: L2(a - b) / max(L2(b), 1e-6 x RMS of all gradients of the file x sqrt(n)); some are
-- exactly zero.
---@param rows table  list of {name, got, want}
function Check:gradients(rows, tolerance)
  local squares, n = 0, 0
  for _, row in ipairs(rows) do
    local norm, k = check.norm(row[3])
    squares, n, row.n = squares + norm * norm, n + k, k
  end
  local rms = n > 0 and (squares / n) ^ 0.5 or 0
  for _, row in ipairs(rows) do
    self:l2(row[1], row[2], row[3], tolerance, 1e-6 * rms * row.n ^ 0.5)
  end
end

--- Gradients of weights: largest absolute difference over the largest value of the tensor, or over
-- a thousandth of the largest of all.
---@param rows table  list of {name, got, want}
function Check:weights(rows, tolerance)
  local all = 0
  for _, row in ipairs(rows) do
    all = math.max(all, largest(row[3]))
  end
  for _, row in ipairs(rows) do
    self:scaled(row[1], row[2], row[3], tolerance, 1e-3 * all)
  end
end

return check
