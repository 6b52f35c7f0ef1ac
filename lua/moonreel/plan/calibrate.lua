--- Compares a plan with the measurements of a run.
-- @module moonreel.plan.calibrate
local plan = require "moonreel.plan"

local calibrate = {}

--- How much longer steps took than planned: the median over the buckets of the plan.
---@param p table       from plan.of
---@param rows table[]  from mr.Measured rows(): bucket, measured_s
---@return number|nil   nil if no bucket of the plan was measured
function calibrate.factor(p, rows)
  local measured, factors = {}, {}
  for _, row in ipairs(rows) do
    measured[row.bucket] = row.measured_s
  end
  for _, b in ipairs(p.buckets) do
    local seconds = measured[plan.bucket_name(b)]
    factors[#factors + 1] = seconds and seconds / b.seconds.step
  end
  table.sort(factors)
  return factors[(#factors + 1) // 2]
end

--- Changes the machine of a mesh to what a run measured.
---@param mesh moonreel.plan.Mesh  changed in place
---@param factor number|nil   times slower; nil: not measured
---@param began integer|nil   bytes of the process when the run began; the process may have worked
---   before
function calibrate.as_run(mesh, factor, began)
  mesh.machine = setmetatable({ slower = factor, program_bytes = began },
    { __index = mesh.machine })
end

--- Compares planned and measured values of each bucket, in the rows.
---@param p table
---@param rows table[]  from mr.Measured rows(); gets planned_s, planned_bytes
function calibrate.compare(p, rows)
  local of = {}
  for _, b in ipairs(p.buckets) do
    of[plan.bucket_name(b)] = b
  end
  for _, row in ipairs(rows) do
    local b = of[row.bucket]
    if b then
      -- decoder processes are not part of the measured process
      row.planned_s, row.planned_bytes = b.seconds.step, b.total - b.bytes.decoders
    end
  end
end

return calibrate
