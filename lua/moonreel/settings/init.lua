--- Settings: a recipe, resolved and frozen; each value knows the line that set it. bake() runs a
-- list of named steps. Later code reads settings and never a recipe. Ref: recipes.md 3 to 6,
-- design.md 2.1.
-- @module moonreel.settings
local fault = require "moonreel.recipe.fault"
local files = require "moonreel.recipe.files"

local settings = {}

-- arguments of the command line in one form
local function arguments_of(overrides)
  local override = require "moonreel.recipe.override"
  local out = {}
  for i, item in ipairs(overrides or {}) do
    out[i] = type(item) == "string" and override.parse(item) or item
  end
  return out
end

-- refuses a path or an argument that settings cannot store
local function check_text(what, text)
  if not utf8.len(text) then
    fault.usage("%s '%s' is not UTF-8; try: a terminal with a UTF-8 locale, or another name", what,
      require("moonreel.core.base").printable(text))
  end
end

--- Bakes a recipe.
---@param name string        path from the working directory, or a recipe's name
---@param overrides table|nil  "key=value" texts or {key, text, argument}, weakest first
---@param options table|nil  {stage = NAME: one stage of a recipe with stages, child = false: bake
---   even a recipe that is not shipped in this process, may_be: what the name can mean apart from a
---   recipe, as in moonreel.recipe.files}
---@return table settings    frozen; s.optim.lr, s:get("optim.lr"), s:origin("optim.lr"), s.hash,
---   s:to_json()
function settings.bake(name, overrides, options)
  if type(name) ~= "string" then
    error("settings.bake: expected the name of a recipe, got " .. type(name), 2)
  end
  options = options or {}
  check_text("recipe", name)
  local file = files.root(name, options.may_be)
  local arguments = arguments_of(overrides)
  for _, argument in ipairs(arguments) do
    check_text("argument", argument.argument)
  end
  -- a recipe that is not shipped runs in a child process with limits; only settings come back
  if not file.shipped and options.child ~= false then
    return require("moonreel.settings.child").bake(name, arguments, options.stage)
  end
  return require("moonreel.settings.bake").bake(file, arguments, options.stage)
end

--- Settings with more fields set. Other values keep their origins.
---@param base table        baked
---@param overrides table   as in bake
---@param moved table|nil   records that replace others: {model = "img_flux"}; their fields keep the
---   origins of the latter
---@return table settings   baked
function settings.with(base, overrides, moved)
  local core = require "moonreel.core.base"
  local path = os.tmpname()
  os.remove(path)
  path = path .. ".lua"
  core.replace_file(path, base:to_recipe())
  local good, result = pcall(function()
    local file = files.root(path)
    file.shown = base.recipe
    return require("moonreel.settings.bake").bake(file, arguments_of(overrides), nil, nil,
      { settings = base, moved = moved or {} })
  end)
  os.remove(path)
  if not good then
    error(result, 0)
  end
  return result
end

--- Reads settings that a run has stored.
---@param text string   the text of settings.json
---@param where string  for messages
---@return table settings
function settings.from_json(text, where)
  return require("moonreel.settings.restore").from_json(text, where)
end

--- Reads settings.json of a run directory or checkpoint.
---@param path string
---@return table settings
function settings.load(path)
  local base = require "moonreel.core.base"
  if not base.exists(path) then
    fault.recipe("%s: there is no such file; expected the settings.json of a run", path)
  end
  return settings.from_json(base.read_file(path), path)
end

return settings
