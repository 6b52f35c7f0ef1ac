--- Settings of released weights: a folder with config.json says the sizes of its model, everything
-- else is as in the reference's recipe for rendering.
-- @module moonreel.sample.released
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local read_config = require "moonreel.text.config"

local released = {}

local RECIPE = "opensora-1.2/sample"

-- fields of config.json that the model has too
local FIELDS = { "depth", "hidden_size", "num_heads", "patch_size", "in_channels",
  "caption_channels", "model_max_length", "input_sq_size", "mlp_ratio", "qk_norm", "pred_sigma" }

--- Settings for weights.
---@param source mr.Checkpoint
---@param overrides table  as for settings.bake, over what config.json says
---@return table settings
function released.settings(source, overrides)
  local path = source.path .. "/config.json"
  if not base.exists(path) then
    base.raise("MR_E_USAGE", ("%s: these are weights without settings or config.json; try: "
      .. "moonreel sample RECIPE --ckpt-path %s"):format(source.path, source.path))
  end
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

return released
