--- Do recipes and all their stages fit, or why not?
-- @module moonreel.plan.check
local compiled = require "moonreel.plan.compiled"
local files = require "moonreel.recipe.files"
local plan = require "moonreel.plan"
local settings = require "moonreel.settings"

local check = {}

-- the first line of what was raised
local function reason(problem)
  return (tostring(problem):match("^[^\n]*"))
end

-- settings of a recipe, or of each of its stages: {stage, settings}
local function baked(name, overrides)
  local outer = settings.bake(name, overrides)
  local list = {}
  for i, one in ipairs(outer.stages or {}) do
    list[i] = { stage = one.name,
      settings = settings.bake(name, overrides, { stage = one.name }) }
  end
  return #list > 0 and list or { { settings = outer } }
end

--- A row per recipe, stage and mesh.
---@param names string[]     recipes; none: all that ship
---@param meshes table[]     of moonreel.plan.mesh
---@param overrides table[]  of the command line
---@return table[] rows  {recipe, stage, gpus, fits, total, memory, bucket, why}: fits is nil where
---   nothing could be planned, with the reason in `why`
function check.rows(names, meshes, overrides)
  local rows, shared <close> = {}, setmetatable({}, { __close = function(all)
    for _, one in pairs(all) do
      one:close()
    end
  end })
  local all = #names == 0
  for _, name in ipairs(all and files.shipped_names() or names) do
    local good, list = pcall(baked, name, overrides)
    -- among all that ship there are helpers, which are no recipes
    if not good and not all then
      rows[#rows + 1] = { recipe = name, why = reason(list) }
    end
    for _, one in ipairs(good and list or {}) do
      -- what ships without buckets is extended by others, or samples: it does not train by itself
      local trains = one.settings.bucket_config or not all
      for _, mesh in ipairs(trains and meshes or {}) do
        local machine = mesh.machine.name
        shared[machine] = shared[machine] or compiled.new(mesh.machine)
        local ok, p = pcall(plan.of, one.settings, { mesh = mesh, compiled = shared[machine] })
        local row = { recipe = name, stage = one.stage, gpus = mesh:text() }
        if ok then
          row.fits, row.total, row.memory = p.largest.fits, p.largest.total,
            mesh.machine.memory_bytes
          row.bucket = plan.bucket_name(p.largest)
        else
          row.why = reason(p)
        end
        rows[#rows + 1] = row
      end
    end
  end
  return rows
end

return check
