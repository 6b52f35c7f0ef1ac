--- Presets of length and size that the reference's inference server offers. Ref: opensora-1.2.md
-- 9.1.
-- @module moonreel.sample.presets
local base = require "moonreel.core.base"

local presets = {}

local known = {
  low4s = { frames = "4s", resolution = "360p", aspect_ratio = "9:16" },
  high4s = { frames = "4s", resolution = "720p", aspect_ratio = "9:16" },
  low16s = { frames = "16s", resolution = "360p", aspect_ratio = "9:16" },
}

--- The fields of a preset.
---@param name string
---@param command string  for the error
---@return table preset   frames: a length by its name; overrides: sampling.resolution and
---   aspect_ratio, for settings.bake; MR_E_USAGE for another name
function presets.of(name, command)
  local preset = known[name]
  if not preset then
    base.raise("MR_E_USAGE", ("%s: --preset: expected low4s, high4s or low16s, got '%s'"):format(
      command, name))
  end
  local overrides = {}
  for i, key in ipairs { "resolution", "aspect_ratio" } do
    overrides[i] = { key = "sampling." .. key, text = preset[key],
      argument = "--preset " .. name }
  end
  return { frames = preset.frames, overrides = overrides }
end

--- Makes a size by name override the height and width of a checkpoint or recipe.
---@param overrides table  gets them as its first rows
---@param argument string  the argument with the size
function presets.clear_size(overrides, argument)
  for i, key in ipairs { "height", "width" } do
    table.insert(overrides, i, { key = "sampling." .. key, text = "none", argument = argument })
  end
end

return presets
