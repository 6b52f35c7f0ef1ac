--- STDiT3 whose text has the vector of a caption added to each token.
local nn = require "moonreel.nn"
local stdit3 = require "moonreel.models.stdit3"

local dit = { takes_vector = true }

function dit.new(params, config, run)
  local inner = stdit3.new(params, config, run)
  local added = nn.Linear(nn.scope(params), "vector", config.vector_channels,
    config.caption_channels)
  local own = { forward = function(_, g, io)
    local y = io.y + added(g, io.vector):expand(io.y.shape)
    return inner:forward(g, setmetatable({ y = y }, { __index = io }))
  end }
  -- all else is the inner model's
  return setmetatable(own, { __index = function(_, name)
    return name ~= "null_caption" and name ~= "drop_caption" and inner[name] or nil
  end })
end

return dit
