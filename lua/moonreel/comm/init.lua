--- Ranks of a run: the world of this process, and starting a world on this host.
--
--     local world = require("moonreel.comm").world()
--     world:all_reduce(x)                        -- x of all ranks, added in their order
--     local half = world:split(world:rank() % 2)
--
-- @module moonreel.comm
local core = require "moonreel.core.comm"
local life = require "moonreel.core.life"
local options = require "moonreel.text.options"
local place = require "moonreel.comm.place"

local comm = {}

local opened

local read = options.declare("comm.world", {
  { "deadline_s", "number", "seconds that a call may wait", default = 600 },
  { "check", "boolean", "compare the calls of all ranks before each collective" },
  { "lost_after_s", "number", "seconds without an answer after which a host is lost",
    default = 10 },
})

--- All ranks of this run. The first call connects them; later calls give the same world. A single
-- process has a world of one rank.
---@param given table|nil  options of the first call: deadline_s, check, lost_after_s
---@return mr.Comm
function comm.world(given)
  local o = read(given)
  if not opened then
    local here = place.find()
    given = { rank = here.rank, size = here.size, segment = here.segment,
      deadline_s = o.deadline_s, check = o.check, lost_after_s = o.lost_after_s }
    for key, value in pairs(here.tcp or {}) do
      given[key] = value
    end
    if here.size > 1 then
      life.phase "meet"
    end
    opened = core.world(given)
    if here.size > 1 then
      life.phase "open"
    end
  end
  return opened
end

--- Call this before this process ends because of an error that another rank reports: it waits until
-- that rank has left, at most for this time.
---@param deadline_s number
function comm.let_go(deadline_s)
  if opened then
    pcall(opened.barrier, opened, deadline_s)
  end
end

return comm
