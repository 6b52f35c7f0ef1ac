--- Names that the reference gives to lengths, sizes and files. Ref: opensora-1.2.md 3.2, 4.4.
-- @module moonreel.sample.names
local base = require "moonreel.core.base"

local names = {}

-- pixel frames of a name
local lengths = { ["1x"] = 51, ["2x"] = 102, ["4x"] = 204, ["8x"] = 408, ["16x"] = 816,
  ["2s"] = 51, ["4s"] = 102, ["8s"] = 204, ["16s"] = 408, ["32s"] = 816 }

--- Frames of a name such as 4s or 2x, or of a number.
---@param text string
---@return integer
function names.frames(text)
  local n = lengths[text] or math.tointeger(tonumber((text:match("^%d+$"))))
  if not n or n < 1 then
    base.raise("MR_E_USAGE", ("frames '%s': expected a number from 1 on, or a name: 2s, 4s, 8s, "
      .. "16s, 32s, 1x, 2x, 4x, 8x, 16x"):format(text))
  end
  return n
end

-- keys of aspects by name; some are not the nearest to the aspect of the name
local aspects = { ["3:8"] = 0.38, ["9:21"] = 0.43, ["12:25"] = 0.48, ["1:2"] = 0.50,
  ["9:17"] = 0.53, ["27:50"] = 0.54, ["9:16"] = 0.56, ["5:8"] = 0.62, ["2:3"] = 0.67,
  ["3:4"] = 0.75, ["1:1"] = 1.00, ["4:3"] = 1.33, ["3:2"] = 1.50, ["16:9"] = 1.78,
  ["17:9"] = 1.89, ["2:1"] = 2.00, ["50:27"] = 2.08 }

--- The size of a resolution that is nearest to an aspect.
---@param resolution table  its aspects: rows {height / width, height, width}
---@param aspect string     HEIGHT:WIDTH
---@return integer|nil height  nil: the aspect is not HEIGHT:WIDTH
---@return integer|nil width
function names.size(resolution, aspect)
  local high, wide = aspect:match("^(%d+):(%d+)$")
  if not high or tonumber(wide) == 0 then
    return nil
  end
  local ratio, nearest = aspects[aspect] or high / wide, nil
  for _, one in ipairs(resolution.aspects) do
    local distance = math.abs(one[1] - ratio)
    if not nearest or distance < nearest.distance then
      nearest = { distance = distance, height = one[2], width = one[3] }
    end
  end
  return nearest.height, nearest.width
end

--- The path of a rendering without its extension.
---@param folder string
---@param how table  index, from 0; name (sample); prompt, if it is the name; many: a prompt has
---   several renderings, of which this is number k
---@return string
function names.path(folder, how)
  local name = how.prompt or ("%s_%04d"):format(how.name or "sample", how.index)
  return ("%s/%s%s"):format(folder, name, how.many and "-" .. how.k or "")
end

--- The path of a rendering without its extension, by the rule of Open-Sora 2.0. Ref:
-- opensora-2.0.md 16.2.
---@param folder string
---@param how table  name, or stem (of the prompts' file) and index; k (sample, from 0); prefix;
---   prompt, if it is the name
---@return string
function names.path20(folder, how)
  if how.prompt then
    return ("%s/%s-%d"):format(folder, how.prompt:match("^%.*(.-)%.*$"), how.k)
  end
  local name = how.name or ("%s_%04d"):format(how.stem, how.index)
  return ("%s/%s%s%s"):format(folder, how.prefix or "", name, how.k > 0 and "_" .. how.k or "")
end

return names
