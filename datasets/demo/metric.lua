-- Does a rendering show the colour and the direction that its prompt asks for? For
-- `moonreel watch RUN --metric datasets/demo/metric.lua`.
local measure = require "datasets.demo.measure"

watch.metric(function(frames, prompt)
  local T, H, W = frames.shape[1], frames.shape[3], frames.shape[4]
  local found = measure.find(frames:bytes(), T, H, W) or {}
  local function asked(word) return word and prompt:find(word, 1, true) and 1 or 0 end
  return { colour = asked(found.colour), direction = asked(found.direction) }
end)
