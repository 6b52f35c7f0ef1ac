--- Settings for released weights. In a folder with config.json this file gives the sizes of the
-- model; all other values come from the reference's recipe for rendering. The folder of Open-Sora
-- 2.0 has files with fixed names, which that reference's recipes name. Ref: opensora-1.2.md 7,
-- opensora-2.0.md 16.
-- @module moonreel.sample.released
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local read_config = require "moonreel.text.config"

local released = {}

local RECIPE = "opensora-1.2/sample"

-- fields of config.json that the model also has
local FIELDS = { "depth", "hidden_size", "num_heads", "patch_size", "in_channels",
  "caption_channels", "model_max_length", "input_sq_size", "mlp_ratio", "qk_norm", "pred_sigma" }

-- models of Open-Sora 2.0, in the order in which a folder is searched, and their recipes
local FILES = { { "Open_Sora_v2.safetensors", "opensora-2.0/inference/256px" },
  { "Open_Sora_v2_Video_DC_AE.safetensors", "opensora-2.0/inference/high_compression" } }
local HOME = "^%./ckpts/"

-- the folder of a path, and the recipe of a released file
local function known(path)
  for _, row in ipairs(FILES) do
    if path == row[1] or path:sub(-#row[1] - 1) == "/" .. row[1] then
      return path:match "^(.*)/" or ".", row[2]
    end
  end
end

--- The file that the folder of Open-Sora 2.0 means; other paths are unchanged.
---@param spec string
---@return string
function released.file_of(spec)
  for _, row in ipairs(FILES) do
    local path = spec:gsub("/+$", "") .. "/" .. row[1]
    if base.exists(path) and not base.exists(spec .. "/config.json") then
      return path
    end
  end
  return spec
end

-- settings of a recipe of 2.0, with its files in the folder of the weights
local function of_20(folder, recipe, overrides)
  local settings, all = require "moonreel.settings", {}
  for _, leaf in ipairs(settings.bake(recipe):leaves()) do
    local path = type(leaf.raw) == "string" and leaf.raw:find(HOME) and leaf.raw:gsub(HOME, "")
    if path then
      all[#all + 1] = { key = leaf.path, text = folder .. "/" .. path, argument = folder }
    end
  end
  return settings.bake(recipe, table.move(overrides, 1, #overrides, #all + 1, all))
end

-- settings from the config.json of a folder
local function by_config(path, overrides)
  local config, all = read_config(path), {}
  for _, field in ipairs(FIELDS) do
    local value = config[field]
    if value ~= nil and value ~= json.null then
      all[#all + 1] = { key = "model." .. field, text = json.encode(value),
        argument = ("%s: %s"):format(path, field) }
    end
  end
  return require("moonreel.settings").bake(RECIPE, table.move(overrides, 1, #overrides, #all + 1,
    all))
end

--- Settings for weights.
---@param source mr.Checkpoint
---@param overrides table  as in settings.bake, over the values of config.json or the recipe
---@return table settings
function released.settings(source, overrides)
  local folder, recipe = known(source.path)
  if recipe then
    return of_20(folder, recipe, overrides)
  end
  local path = source.path .. "/config.json"
  if not base.exists(path) then
    base.raise("MR_E_USAGE", ("%s: this file has weights, but no settings, and there is no "
      .. "config.json next to it; try: moonreel sample RECIPE --ckpt-path %s"):format(source.path,
      source.path))
  end
  return by_config(path, overrides)
end

return released
