--- Ranks of a run: the world this process belongs to, and starting one on this host.
--
--     local world = require("moonreel.comm").world()
--     world:all_reduce(x)                        -- x of all ranks, added in their order
--     local half = world:split(world:rank() % 2)
--
-- @module moonreel.comm
local core = require "moonreel.core.comm"
local place = require "moonreel.comm.place"

local comm = {}

local opened

--- All ranks of this run; the first call meets them, later ones give the same world. Alone it has
-- one rank and needs nobody.
---@param options table|nil  of the first call: deadline_s (600), check (compare all calls),
---   lost_after_s (10: of a host that does not answer)
---@return mr.Comm
function comm.world(options)
  if not opened then
    local here = place.find()
    options = options or {}
    local given = { rank = here.rank, size = here.size, meeting = here.meeting,
      deadline_s = options.deadline_s, check = options.check,
      lost_after_s = options.lost_after_s }
    for key, value in pairs(here.tcp or {}) do
      given[key] = value
    end
    opened = core.world(given)
  end
  return opened
end

--- Before this process ends by an error that another rank tells: wait until that one has left, at
-- most so long.
---@param deadline_s number
function comm.let_go(deadline_s)
  if opened then
    pcall(opened.barrier, opened, deadline_s)
  end
end

return comm
