--- Renderings by several pipelines of which one is in memory at a time, as an image model that
-- makes the first frame of a clip: what one has rendered is a reference of the next.
-- @module moonreel.sample.chain
local sample = require "moonreel.sample"

local chain = {}

--- Render by each pipeline in turn.
---@param list table[]   {spec, open = options of sample.open, render = options of sampler:render};
---   all have as many renderings
---@return table clips   of the last one, as sampler:render returns them
function chain.render(list)
  local clips
  for _, one in ipairs(list) do
    local sampler <close> = sample.open(one[1], one.open)
    local given = { after = clips }
    for name, value in pairs(one.render) do
      given[name] = value
    end
    clips = sampler:render(given)
  end
  return clips
end

return chain
