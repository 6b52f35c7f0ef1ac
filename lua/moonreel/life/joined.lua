--- Presents the pages of one job's ranks on this host as one page, when another launcher started
-- each rank separately.
-- @module moonreel.life.joined
local life = require "moonreel.life"

local joined = {}

---@class moonreel.life.Joined
---@field list integer[]  the known ranks, ascending
local Joined = {}
Joined.__index = Joined

--- The ranks of a job that have started on this host.
---@param job string   the job id that the ranks publish
---@param host string  name of this host
---@return moonreel.life.Joined
function joined.new(job, host)
  return setmetatable({ job = job, host = host, pages = {}, paths = {}, list = {} }, Joined)
end

--- Adds ranks that have started since the last call.
function Joined:refresh()
  for _, one in ipairs(life.launches()) do
    local about = one.about
    if about.job == self.job and about.host == self.host and not self.paths[one.path] then
      self.paths[one.path], self.pages[about.first] = true, one.page
      self.list[#self.list + 1] = about.first
    else
      one.page:close()
    end
  end
  table.sort(self.list)
end

--- Like mr.Life:about, of the first rank; list: all ranks, which need not be consecutive.
function Joined:about()
  local about = self.pages[self.list[1]]:about()
  about.ranks, about.list = #self.list, self.list
  return about
end

--- This method and the following ones are like those of mr.Life.
function Joined:rank(rank) return self.pages[rank]:rank(rank) end
function Joined:ops(rank) return self.pages[rank]:ops(rank) end
function Joined:own_s(rank, step) return self.pages[rank]:own_s(rank, step) end

--- The largest quantile of all pages, and the total number of durations.
function Joined:quantile(phase, share)
  local longest, count = 0, 0
  for _, page in pairs(self.pages) do
    local seconds, n = page:quantile(phase, share)
    longest, count = math.max(longest, seconds), count + n
  end
  return longest, count
end

--- Does any of its ranks still run?
---@return boolean
function Joined:lives()
  for _, rank in ipairs(self.list) do
    if self:rank(rank).state then
      return true
    end
  end
  return false
end

return joined
