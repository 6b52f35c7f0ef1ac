--- The prompt of several ranks: every rank runs what is typed at the prompt of rank 0. The other
-- ranks wait for input, print no results, and report which rank failed.
-- @module moonreel.repl.ranks
local edit = require "moonreel.core.edit"

local ranks = {}

---@class mr.repl.Ranks
---@field rank integer
---@field size integer
local Ranks = {}
Ranks.__index = Ranks

--- The ranks of this run; nil: it is alone.
---@return mr.repl.Ranks|nil
function ranks.find()
  if require("moonreel.comm.place").find().size == 1 then
    return nil
  end
  -- a group of its own: calls that are typed keep their numbers
  local group = require("moonreel.comm").world():split(0)
  return setmetatable({ rank = group:rank(), size = group:size(), group = group,
    team = require("moonreel.comm.team").new(group) }, Ranks)
end

-- what rank 0 gives, however long that takes; "": no more comes
local function pass(self, text)
  self.group:barrier(math.huge)
  return self.team:texts(text)[1]
end

--- On rank 0: the others run this too; nil: nothing more. Raises when ranks are lost, the first
-- time.
---@param text string|nil
function Ranks:tell(text)
  if self.lost then
    return
  end
  local reported, problem = pcall(pass, self, text or "")
  if not reported then
    self.lost = true
    require("moonreel.core.base").raise("MR_E_NODE",
      ("%s; rank 0 alone runs what is typed from now on"):format(problem.message))
  end
end

--- On all others: run what comes, until nothing more does or ranks are lost.
---@param feed fun(text: string)
function Ranks:follow(feed)
  -- Ctrl-C is for what runs, and for the prompt
  edit.deaf()
  while true do
    local heard, text = pcall(pass, self, "")
    if not heard or text == "" then
      return
    end
    feed(text)
    io.stdout:flush()
  end
end

return ranks
