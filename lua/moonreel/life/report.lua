--- Saves a report about a rank that hangs: a file in the run's folder log/.
-- @module moonreel.life.report
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local stacks = require "moonreel.life.stacks"

local report = {}

local OPS <const> = 50 -- the newest operations of each rank in a report

--- Collects the current contents of a page and an event of the watch.
---@param page mr.Life
---@param event table
---@return table
function report.of(page, event)
  local about, ranks = page:about(), json.array()
  for i = 1, about.ranks do
    local rank = about.list and about.list[i] or about.first + i - 1
    local log, now = page:ops(rank), page:rank(rank)
    now.ops = json.array(table.move(log, math.max(1, #log - OPS + 1), #log, 1, {}))
    now.threads = json.array(stacks.of_rank(page, rank).threads)
    for _, thread in ipairs(now.threads) do
      thread.frames = json.array(thread.frames)
    end
    ranks[#ranks + 1] = now
  end
  return { event = event, now_s = base.now_s(), wall = base.wall_s(), about = about,
    ranks = ranks }
end

--- Writes the report into the log folder of the run.
---@param page mr.Life
---@param event table
---@return string|nil path  nil: the run has no folder yet, or the folder cannot be written
function report.write(page, event)
  local dir = page:about().dir
  local path = dir and ("%s/log/hang-step-%d-rank-%d.json"):format(dir, event.step, event.rank)
  local good = path and pcall(base.replace_file, path, json.encode(report.of(page, event)))
  return good and path or nil
end

return report
