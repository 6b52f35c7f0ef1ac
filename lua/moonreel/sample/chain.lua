--- Renderings by several pipelines of which one is in memory at a time, as an image model that
-- makes the first frame of a clip: what one has rendered is a reference of the next.
-- @module moonreel.sample.chain
local chain = {}

--- Render by each pipeline in turn.
---@param list table[]   {open = fun(): mr.Sampler, ask = fun(clips: table|nil): options of
---   sampler:render, by what the one before has rendered}; all have as many renderings
---@return table clips   of the last one, as sampler:render returns them
function chain.render(list)
  local clips
  for _, one in ipairs(list) do
    local sampler <close> = one.open()
    clips = sampler:render(one.ask(clips))
  end
  return clips
end

return chain
