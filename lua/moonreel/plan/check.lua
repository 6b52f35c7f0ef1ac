--- Checks whether recipes and all their stages fit, and why not.
-- @module moonreel.plan.check
local compiled = require "moonreel.plan.compiled"
local files = require "moonreel.recipe.files"
local plan = require "moonreel.plan"
local settings = require "moonreel.settings"
local show = require "moonreel.plan.show"
local solve = require "moonreel.plan.solve"

local check = {}

-- the first line of an error
local function reason(problem)
  return (tostring(problem):match("^[^\n]*"))
end

-- settings of a recipe, or of each of its stages: {stage, settings}
local function baked(name, overrides)
  -- bakes it with more values after those of the command line
  local function bake(stage, values)
    local all = table.move(overrides, 1, #overrides, 1, {})
    return settings.bake(name, table.move(values, 1, #values, #all + 1, all), { stage = stage })
  end
  local function entry(stage)
    return { stage = stage, settings = bake(stage, {}),
      bake = function(values) return bake(stage, values) end }
  end
  local list = {}
  for i, one in ipairs(settings.bake(name, overrides).stages or {}) do
    list[i] = entry(one.name)
  end
  return #list > 0 and list or { entry() }
end

-- the meshes for baked settings: a job that uses one GPU is planned once for each machine
local function meshes_of(s, meshes)
  local list, seen = {}, {}
  for _, mesh in ipairs(plan.is_alone(s) and meshes or {}) do
    list[#list + 1] = not seen[mesh.machine.name] and mesh:alone() or nil
    seen[mesh.machine.name] = true
  end
  return list[1] and list or meshes
end

--- A row per recipe, stage and mesh.
---@param names string[]     recipes; empty: all that ship
---@param meshes table[]     from moonreel.plan.mesh; jobs that use one GPU are planned for one
---@param overrides table[]  of the command line
---@return table[] rows  {recipe, stage, gpus, fits, total, memory, bucket, why}: fits is nil if
---   planning failed; `why` says what is wrong, and what would fit
function check.rows(names, meshes, overrides)
  local _ <close> = compiled.by_generations()
  local rows, shared <close> = {}, setmetatable({}, { __close = function(all)
    for _, one in pairs(all) do
      one:close()
    end
  end })
  local all = #names == 0
  for _, name in ipairs(all and files.shipped_names() or names) do
    local good, list = pcall(baked, name, overrides)
    -- the shipped files include helpers, which are not recipes
    if not good and not all then
      rows[#rows + 1] = { recipe = name, why = reason(list) }
    end
    for _, one in ipairs(good and list or {}) do
      -- a shipped recipe without buckets does not train by itself: others extend it, or it samples
      local trains = one.settings.bucket_config or not all
      for _, mesh in ipairs(trains and meshes_of(one.settings, meshes) or {}) do
        local machine = mesh.machine.name
        shared[machine] = shared[machine] or compiled.new(mesh.machine)
        local given = { mesh = mesh, compiled = shared[machine] }
        local ok, p = pcall(plan.of, one.settings, given)
        local row = { recipe = name, stage = one.stage, gpus = mesh:text() }
        if ok then
          row.fits, row.total, row.memory = p.largest.fits, p.largest.total,
            mesh.machine.memory_bytes
          row.bucket = plan.bucket_name(p.largest)
        else
          row.why = reason(p)
        end
        if row.fits == false then
          p.remedies = solve.remedies(p, given, one.bake)
          row.why = show.too_large(p)
        end
        rows[#rows + 1] = row
      end
    end
  end
  return rows
end

return check
