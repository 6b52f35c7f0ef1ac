--- The prompt with several ranks: every rank runs what is typed at the prompt of rank 0. The other
-- ranks wait for input, print no results, and report which rank failed.
-- @module moonreel.repl.ranks
local edit = require "moonreel.core.edit"

local ranks = {}

---@class mr.repl.Ranks
---@field rank integer
---@field size integer
local Ranks = {}
Ranks.__index = Ranks

--- Finds the ranks of this run; nil: this process is alone.
---@return mr.repl.Ranks|nil
function ranks.find()
  if require("moonreel.comm.place").find().size == 1 then
    return nil
  end
  -- a separate group, so that calls that the user types keep their numbers
  local group = require("moonreel.comm").world():split(0)
  return setmetatable({ rank = group:rank(), size = group:size(), group = group,
    team = require("moonreel.comm.team").new(group) }, Ranks)
end

-- broadcasts a text from rank 0, with no time limit; "": the end
local function pass(self, text)
  self.group:barrier(math.huge)
  return self.team:texts(text)[1]
end

--- On rank 0: sends input to the other ranks; nil: the end. Raises an error when ranks are lost,
-- but only once.
---@param text string|nil
function Ranks:tell(text)
  if self.lost then
    return
  end
  local reported, problem = pcall(pass, self, text or "")
  if not reported then
    self.lost = true
    require("moonreel.core.base").raise("MR_E_NODE",
      ("%s; from now on only rank 0 runs what is typed"):format(problem.message))
  end
end

--- On all other ranks: runs input until the end, or until ranks are lost.
---@param feed fun(text: string)
function Ranks:follow(feed)
  -- only rank 0 reacts to Ctrl-C
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
