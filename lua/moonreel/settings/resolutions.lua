--- Finds names in bucket_config that are not in `resolutions`: `show` notes them, `train` refuses
-- them.
-- @module moonreel.settings.resolutions
local computed = require("moonreel.data.aspects").resolution
local nearest = require "moonreel.text.nearest"

--- Checks the names in bucket_config.
---@param leaves table[]  {path, keys, chain} of settings
---@return table[]  {path of the first leaf below the name, text}, in the order of paths
return function(leaves)
  local known, names, out = {}, {}, {}
  for _, leaf in ipairs(leaves) do
    local name = leaf.keys[1] == "resolutions" and leaf.keys[2]
    if name and not known[name] then
      known[name] = true
      names[#names + 1] = name
    end
  end
  for _, leaf in ipairs(leaves) do
    local name = leaf.keys[1] == "bucket_config" and leaf.keys[2]
    local new = name and not known[name]
    if new then
      known[name] = true
    end
    if new and not computed(name) then
      local near = nearest(name, names)
      local text = ("bucket_config.%s: there is no resolution of this name%s; try: resolutions = { "
        .. "[%q] = { pixels = ..., aspects = ... } }"):format(name,
        near and (", did you mean '" .. near .. "'?") or "", name)
      out[#out + 1] = { path = leaf.path, text = text }
    end
  end
  return out
end
