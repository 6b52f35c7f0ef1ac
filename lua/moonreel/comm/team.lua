--- Decisions that all ranks make together, because a rank that decided alone would leave the others
-- waiting or diverging. A team of one rank asks no other.
-- @module moonreel.comm.team
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"

local team = {}

---@class mr.Team
---@field world mr.Comm|nil  nil: one rank alone
---@field rank integer       from 0
---@field size integer
---@field leads boolean      this is rank 0, which prints and writes for all
local Team = {}
Team.__index = Team

--- The ranks of a world; without a world this process alone.
---@param world mr.Comm|nil
---@return mr.Team
function team.new(world)
  if world and world:size() == 1 then
    world = nil
  end
  local rank = world and world:rank() or 0
  return setmetatable({ world = world, rank = rank, size = world and world:size() or 1,
    leads = rank == 0 }, Team)
end

--- Numbers of all ranks: a list of them by rank.
---@param numbers number[]  the same count on every rank
---@return number[][]
function Team:all(numbers)
  if not self.world then
    return { numbers }
  end
  local n, rows = #numbers, {}
  local flat = self.world:all_gather(T.from({ 1, n }, numbers, "f64")):totable()
  for rank = 1, self.size do
    rows[rank] = table.move(flat, (rank - 1) * n + 1, rank * n, 1, {})
  end
  return rows
end

--- Rows of numbers of all ranks, as lists by rank. All ranks know the number of rows of each.
---@param numbers number[]  of this rank, row after row
---@param counts integer[]  rows of each rank
---@param width integer     numbers in a row
---@return number[][]
function Team:lists(numbers, counts, width)
  if not self.world then
    return { numbers }
  end
  local lists, at = {}, 0
  local own = T.from({ counts[self.rank + 1], width }, numbers, "f64")
  local flat = self.world:all_gather(own, { rows = counts }):totable()
  for rank, rows in ipairs(counts) do
    lists[rank], at = table.move(flat, at + 1, at + rows * width, 1, {}), at + rows * width
  end
  return lists
end

--- Sums over ranks, added in their order.
---@param numbers number[]  the same count on every rank
---@return number[]
function Team:sum(numbers)
  local sums = {}
  for _, row in ipairs(self:all(numbers)) do
    for i, number in ipairs(row) do
      sums[i] = (sums[i] or 0) + number
    end
  end
  return sums
end

-- a text as a tensor
local function bytes_of(text)
  local list = {}
  for i = 1, #text do
    list[i] = text:byte(i)
  end
  return T.from({ #text }, list, "u8")
end

--- Texts of all ranks, by rank.
---@param text string
---@return string[]
function Team:texts(text)
  if not self.world then
    return { text }
  end
  local rows, out, at = {}, {}, 0
  for rank, row in ipairs(self:all { #text }) do
    rows[rank] = math.tointeger(row[1])
  end
  local all = self.world:all_gather(bytes_of(text), { rows = rows }):bytes()
  for rank, n in ipairs(rows) do
    out[rank], at = all:sub(at + 1, at + n), at + n
  end
  return out
end

-- raises the error that another rank reports: this rank ends with the same code
local function reported(rank, failure)
  error({ code = failure.code, exit = failure.exit, reported = true,
    message = ("rank %d: %s"):format(rank, failure.message) }, 0)
end

-- an error in the form for other ranks
local function failure_of(problem)
  if type(problem) == "table" and problem.exit then
    return { code = problem.code, exit = problem.exit, message = problem.message,
      reported = problem.reported }
  end
  return { code = "MR_E_FAIL", exit = 1, message = tostring(problem) }
end

--- A message handler for xpcall: an error passes unchanged, a defect gets its trace at the point
-- where it happens.
---@param problem any
---@return table|string
function team.traced(problem)
  return type(problem) == "table" and problem or debug.traceback(tostring(problem), 2)
end

-- no rank leaves before all have received the error: otherwise the others would only notice that a
-- rank has ended
local function gather_once_more(self) pcall(self.world.barrier, self.world) end

--- Calls f on every rank. If it fails on some ranks, it fails on all, with the error of the first
-- of these.
---@param f function
---@return any  result of f
function Team:try(f, ...)
  if not self.world then
    return f(...)
  end
  local good, result = xpcall(f, team.traced, ...)
  local heard, texts = pcall(self.texts, self, good and "" or json.encode(failure_of(result)))
  if not heard then
    -- the ranks have lost contact within f
    error(good and texts or result, 0)
  end
  for rank, text in ipairs(texts) do
    local failed = text ~= "" and json.decode(text)
    -- an error that was reported within f belongs to the rank that reported it
    if failed and not failed.reported then
      gather_once_more(self)
      if rank - 1 == self.rank then
        error(result, 0)
      end
      reported(rank - 1, failed)
    end
  end
  if not good then
    error(result, 0)
  end
  return result
end

--- Calls f on the first rank only; all ranks get its result, or its error.
---@param f fun(): table  returns values that JSON can represent
---@return table
function Team:first(f)
  if not self.world then
    return f()
  end
  local text = self:try(function() return self.leads and json.encode(f()) or "" end)
  return json.decode(self:texts(text)[1])
end

--- Compares a value of this rank with that of the first one. If they differ, all ranks fail, with
-- the error of the first rank that differs.
---@param own string
---@param differs fun(theirs: string)  raises the error
function Team:same(own, differs)
  local theirs = self:first(function() return { own } end)[1]
  self:try(function()
    if own ~= theirs then
      differs(theirs)
    end
  end)
end

--- The number of ranks on a host, if all hosts have the same number of consecutive ranks; nil: they
-- do not, or it is unknown.
---@param here moonreel.comm.Place
---@return integer|nil
function Team:even(here)
  local n
  for rank, row in ipairs(self:all { here.local_size or 0, here.local_rank }) do
    n = n or row[1]
    if row[1] == 0 or row[1] ~= n or row[2] ~= (rank - 1) % n then
      return nil
    end
  end
  return math.tointeger(n)
end

--- Fails on all ranks with the same error, which every rank knows; the first one reports it.
---@param code string
---@param text string
function Team:raise(code, text)
  local _, problem = pcall(base.raise, code, text)
  if self.world then
    gather_once_more(self)
  end
  if self.leads then
    error(problem, 0)
  end
  reported(0, failure_of(problem))
end

return team
