--- Text encoder "text_embedder" of Open-Sora 2.0: a T5 whose padding takes part, or a CLIP.
-- config.json decides which one; without it the name decides, as in the reference: "openai" means
-- CLIP. Captions are not changed. Ref: opensora-2.0.md 14.
-- @module moonreel.models.text_embedder
local base = require "moonreel.core.base"
local clip = require "moonreel.models.clip"
local read_config = require "moonreel.text.config"
local t5 = require "moonreel.models.t5"

local text_embedder = {}

--- Its weights are in separate files; `files` also decide its features.
text_embedder.apart = true
text_embedder.files = { t5.files[1], clip.files[1], clip.files[2] }

local function is_clip(path)
  local file = path .. "/config.json"
  if base.exists(file) then
    return tostring(read_config(file).model_type):find "^clip" ~= nil
  end
  return path:find "openai" ~= nil
end

--- The encoder of a recipe.
---@param params mr.Params
---@param config table  from_pretrained, max_length
---@param run table     dtype, compat
---@return mr.Text      of the family t5 or clip
function text_embedder.new(params, config, run)
  local path = config.from_pretrained
  if not path then
    base.raise("MR_E_RECIPE", "type = text_embedder needs from_pretrained; expected the folder "
      .. "of a T5 v1.1 (text_encoder) or of a CLIP (clip)")
  elseif is_clip(path) then
    return clip.new(params, { from_pretrained = path, at_most = config.max_length }, run)
  end
  return t5.new(params, { from_pretrained = path, model_max_length = config.max_length,
    residency = "auto", padding = "attend", cleans = false }, run)
end

return text_embedder
