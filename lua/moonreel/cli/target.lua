--- What RECIPE|RUN means to commands that look at data: settings, and the index that they name.
-- @module moonreel.cli.target
local base = require "moonreel.core.base"

local target = {}

--- Settings of a recipe with what the command line sets, or of a run as it was launched.
---@param parsed table  of words.parse
---@param name string   RECIPE or RUN
---@param stage? string of a recipe that has stages
---@return table settings
---@return string|nil run  its directory
function target.settings(parsed, name, stage)
  local settings = require "moonreel.settings"
  if base.exists(name .. "/settings.json") then
    return settings.load(name .. "/settings.json"), name
  end
  local baked = settings.bake(name, parsed.overrides, { stage = stage })
  if baked.stages and not stage then
    local names = {}
    for i, one in ipairs(baked.stages) do
      names[i] = one.name
    end
    base.raise("MR_E_USAGE", ("%s has stages; try: --stage %s"):format(name,
      table.concat(names, ", --stage ")))
  end
  return baked
end

--- The index of settings.
---@param settings table
---@param given? string  --data
---@return moonreel.Index
function target.index(settings, given)
  local path = given or settings.dataset.data_path
  if not path then
    base.raise("MR_E_USAGE", "dataset.data_path is none; try: --data NAME.mrx")
  end
  local index, input = require("moonreel.trainer.samples").index_of(path)
  if input then
    base.raise("MR_E_DATA", ("no index %s; try: moonreel data ingest %s -o %s"):format(index, path,
      index))
  end
  return require("moonreel.data").open(index)
end

--- A row by its number, from 1, its key, or its path.
---@param index moonreel.Index
---@param name string
---@return table row
function target.row(index, name)
  local i = math.tointeger(tonumber(name))
  if i and i >= 1 and i <= #index then
    return index:row(i)
  end
  if name:match("^%x+$") and #name == 32 then
    local found = index.core:find(name:lower())
    if found then
      return index:row(found)
    end
  elseif not i then
    for k = 1, #index do
      local row = index:row(k)
      if row.path == name or row.file == name or row.path:match("[^/]*$") == name then
        return row
      end
    end
  end
  base.raise("MR_E_USAGE", ("%s: no sample '%s'; expected a row from 1 to %d, a key of 32 "
    .. "hexadecimal digits, or a path"):format(index.meta.path, name, #index))
end

return target
