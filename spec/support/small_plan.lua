--- Plans that take no time: the demo made small, on a machine without a memory reserve.
local machine = require "moonreel.plan.machine"
local settings = require "moonreel.settings"

local small = {}

--- Its fields, as words of the command line.
small.words = { "model.depth=1", "model.hidden_size=32", "model.num_heads=2",
  "text_encoder.width=32", "model.caption_channels=32" }

--- Its settings, with further words at the end.
function small.bake(...)
  local words = { ... }
  return settings.bake("tiny/demo", table.move(words, 1, #words, #small.words + 1,
    table.move(small.words, 1, #small.words, 1, {})))
end

--- An H100 with this much memory and no reserve, so that small graphs matter.
function small.machine(memory)
  return setmetatable({ reserve_bytes = 0, memory_bytes = memory },
    { __index = machine.open "H100" })
end

return small
