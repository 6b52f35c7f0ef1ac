--- Families of models: folders that are found by the types which their fields.lua declares.
-- Moonreel's own families are in lua/moonreel/models; the environment variable MOONREEL_MODELS
-- names further folders. Modules of these have the same form of names: FILE.lua of a family is
-- moonreel.models.FAMILY.FILE.
-- @module moonreel.recipe.families
local app = require "moonreel.app"
local base = require "moonreel.core.base"
local form = require "moonreel.recipe.family_form"

local families = {}

families.VARIABLE = "MOONREEL_MODELS"

-- the folder of moonreel's own families
local HOME = "lua/moonreel/models/"

local Family = {}
Family.__index = Family

-- ---- folders of MOONREEL_MODELS

-- paths of the families in MOONREEL_MODELS, by name
local function outside()
  local found = {}
  for folder in (os.getenv(families.VARIABLE) or ""):gmatch("[^:]+") do
    if not base.exists(folder .. "/.") then
      base.raise("MR_E_USAGE", ("%s: no folder '%s'; expected folders of families, as FOLDER of "
        .. "FOLDER/FAMILY/fields.lua"):format(families.VARIABLE, folder))
    end
    if base.exists(folder .. "/fields.lua") then
      base.raise("MR_E_USAGE", ("%s: '%s' is a family; expected the folder that contains it")
        :format(families.VARIABLE, folder))
    end
    for _, name in ipairs(base.list_dir(folder)) do
      local path = folder .. "/" .. name
      if base.exists(path .. "/fields.lua") then
        if not name:match("^[%w_]+$") then
          base.raise("MR_E_USAGE", ("%s: %s: a family's name has letters, digits and _; try: %s")
            :format(families.VARIABLE, path, "mv '" .. path .. "' '" .. folder .. "/"
              .. name:gsub("[^%w_]", "_") .. "'"))
        end
        if found[name] or app.embedded(HOME .. name .. "/fields.lua") then
          base.raise("MR_E_USAGE", ("%s: %s: there is another family '%s'; try: another name")
            :format(families.VARIABLE, path, name))
        end
        found[name] = path
      end
    end
  end
  return found
end

-- the entry of package.searchers for files of these families
local function searcher(found)
  return function(module)
    local name, file = module:match("^moonreel%.models%.([%w_]+)%.?([%w_]*)$")
    local path = found[name] and ("%s/%s.lua"):format(found[name], file ~= "" and file or "init")
    if not path or not base.exists(path) then
      return path and ("no file '%s'"):format(path) or nil
    end
    local chunk, problem = loadfile(path, "t")
    if not chunk then
      -- an error of syntax begins with the path, others have none
      base.raise("MR_E_RECIPE", problem:find(path, 1, true) and problem or path .. ": " .. problem)
    end
    return chunk, path
  end
end

-- ---- all families

local known

-- the name of a family, with its folder if it comes from MOONREEL_MODELS
function Family:__tostring()
  return self.path and ("%s (%s)"):format(self.name, self.path) or self.name
end

-- does a family have this file?
function Family:has(file)
  if self.path then
    return base.exists(("%s/%s.lua"):format(self.path, file))
  end
  return app.embedded(("%s%s/%s.lua"):format(HOME, self.name, file)) ~= nil
end

--- A file of a family; nil if the family has no file of this name.
---@param file string  "init", "weights"
---@return table|nil
function Family:open(file)
  if not self:has(file) then
    return nil
  end
  local made = require(file == "init" and self.module or self.module .. "." .. file)
  if type(made) ~= "table" or file == "init" and type(made.new) ~= "function" then
    base.raise("MR_E_RECIPE", ("family %s: %s.lua returns %s; expected a table%s"):format(
      tostring(self), file, made == true and "nothing" or type(made),
      file == "init" and " with a function `new`" or ""))
  end
  return made
end

--- Can the family be used in a record? It may be used in several.
---@param record string
---@return boolean
function Family:stands(record)
  local declared = self.fields.record
  for _, one in ipairs(type(declared) == "table" and declared or { declared }) do
    if one == record then
      return true
    end
  end
  return false
end

--- The values of its fields that a recipe does not set.
---@return table  a new one: values by field
function Family:defaults()
  local values = {}
  for _, row in ipairs(self.fields.fields) do
    values[row[1]] = row.default
  end
  return values
end

--- All families in the order of their names.
---@return mr.Family[]  name, module; fields: those of its fields.lua; path: the folder of one from
---   MOONREEL_MODELS
function families.all()
  if known then
    return known
  end
  local paths, list = outside(), {}
  if next(paths) then
    -- after moonreel's own modules, before those of the working directory
    table.insert(package.searchers, 3, searcher(paths))
  end
  local function add(name, path)
    local module = (HOME:sub(5) .. name):gsub("/", ".")
    local fields = require(module .. ".fields")
    list[#list + 1] = setmetatable({ name = name, module = module, path = path,
      fields = path and form(path .. "/fields.lua", fields) or fields }, Family)
  end
  for _, path in ipairs(app.embedded_list()) do
    local name = path:match("^" .. HOME .. "([%w_]+)/fields%.lua$")
    if name then
      add(name)
    end
  end
  for name, path in pairs(paths) do
    add(name, path)
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  known = list
  return list
end

--- What reads a type in a record: false: nothing yet; "plan": only the plan. A type may be built
-- for some of its records only.
---@param row table      an entry of `types` in fields.lua; its reader may be a table by records
---@param record string
---@return string|boolean|nil
function families.reader(row, record)
  if type(row.reader) == "table" then
    return row.reader[record]
  end
  return row.reader
end

--- The family of a type.
---@param record string  "model", "vae", "text_encoder"
---@param type string
---@return mr.Family     one that this version can build
function families.of(record, type)
  local built = {}
  for _, family in ipairs(families.all()) do
    if family:has "init" and family:stands(record) then
      for other, row in pairs(family.fields.types) do
        local is_built = families.reader(row, record) ~= false
        if is_built and other == type then
          return family
        end
        built[#built + 1] = is_built and other or nil
      end
    end
  end
  table.sort(built)
  base.raise("MR_E_RECIPE", ("%s.type = '%s' is not built in this version; built so far: %s")
    :format(record, tostring(type), table.concat(built, ", ")))
end

return families
