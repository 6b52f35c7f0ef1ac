--- Restores the command line of a run that continues: `--load` applies its values again, so that a
-- resume needs to give only the values that change.
-- @module moonreel.settings.resume
local override = require "moonreel.recipe.override"
local registry = require "moonreel.recipe.registry"
local stages = require "moonreel.settings.stages"
local words = require "moonreel.settings.words"

local resume = {}

-- fields that say where a launch starts from; each launch sets them itself
local start = { load = true, ckpt_path = true, start_from_scratch = true, start_step = true,
  start_epoch = true }

-- The path whose value an argument decides alone, or nil: a table is merged with other arguments.
local function decides(argument)
  local _, of_stage = stages.split(argument.key)
  local target = override.target(of_stage or argument.key)
  if target and target.schema.tag ~= "record" and target.schema.tag ~= "map"
      and not target.indices then
    return argument.key:match("^stages%.[^.]+%.") or "", registry.path(target.keys)
  end
end

--- The arguments of an earlier launch that apply to the present one: without those that say where
-- to start from, and those that are given again.
---@param earlier table    settings of the run that is continued
---@param now table        settings of the present launch; with another recipe no argument is taken
---@param arguments table[]  {key, text, argument} of the present launch
---@param command table    the command of both launches
---@return table[] taken   {key, text, argument, taken = true}, weakest first
function resume.taken(earlier, now, arguments, command)
  local given, taken = {}, {}
  local function note(argument)
    local stage, path = decides(argument)
    if stage then
      given[stage .. path] = true
    else
      given[argument.argument] = true
    end
  end
  local function is_given(argument)
    local stage, path = decides(argument)
    if stage == "" and start[path] then
      return true
    end
    return given[stage and stage .. path or argument.argument]
  end
  if earlier.recipe ~= now.recipe then
    return taken
  end
  for _, argument in ipairs(arguments) do
    note(argument)
  end
  for i = #earlier.arguments, 1, -1 do
    -- an argument may be two words: a flag and its value, which may contain blanks
    local typed = earlier.arguments[i]
    local flag, value = typed:match("^(%-[^%s=]*) (.*)$")
    for _, one in ipairs(words.parse(flag and { flag, value } or { typed }, command).overrides) do
      if not is_given(one) then
        one.taken = true
        table.insert(taken, 1, one)
        note(one)
      end
    end
  end
  return taken
end

return resume
