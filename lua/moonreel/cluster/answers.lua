--- What a host's helper can be asked, by name; each answer is plain data.
-- @module moonreel.cluster.answers
local base = require "moonreel.core.base"

local answers = {}

--- The wall clock, between two readings of the one that only goes forward.
function answers.time()
  return { wall_s = base.wall_s(), now_s = base.now_s() }
end

return answers
