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

--- What a preset sets.
---@param name string
---@param command string  for the error
---@return table preset   frames: a length by its name; overrides: of sampling.resolution and
---   aspect_ratio, as settings.bake takes them; MR_E_USAGE for another name
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

--- A size by name goes over the height and width that a checkpoint or recipe brings.
---@param overrides table  gets them as its first rows
---@param argument string  that names the size
function presets.clear_size(overrides, argument)
  for i, key in ipairs { "height", "width" } do
    table.insert(overrides, i, { key = "sampling." .. key, text = "none", argument = argument })
  end
end

return presets
