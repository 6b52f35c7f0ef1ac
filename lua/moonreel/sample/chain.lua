--- Renders with several pipelines in turn, one of them in memory at a time: an image model makes
-- the first frame of a clip, and its picture is a reference of the next rendering.
-- @module moonreel.sample.chain
local chain = {}

--- Renders with each pipeline in turn.
---@param list table[]   {open = fun(): mr.Sampler, ask = fun(clips: table|nil): options for
---   sampler:render, given the clips of the pipeline before}; all make the same number of
---   renderings
---@return table clips   from the last one, as sampler:render returns them
function chain.render(list)
  local clips
  for _, one in ipairs(list) do
    local sampler <close> = one.open()
    clips = sampler:render(one.ask(clips))
  end
  return clips
end

return chain
