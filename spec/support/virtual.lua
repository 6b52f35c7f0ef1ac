--- Many ranks in one process: each is a coroutine with a world of its own. When they communicate,
-- because a group is split or a program runs, all continue together, each in a thread.
--
--     local reported = virtual.run(64, function(world, ranks)
--       local half = world:split(world:rank() % 2)
--       ...
--       ranks.run(program)
--     end)
local process = require "moonreel.core.process"

local virtual = {}

local new = assert(package.loadlib(process.program():gsub("[^/]*$", "") .. "virtual_ranks.so",
  "luaopen_virtual_ranks"))()

-- a group as a rank's own Lua code sees it
local Group = {}
Group.__index = Group

local function group(all, number)
  local rank, size = all:group(number)
  return setmetatable({ all = all, number = number, at = rank, n = size }, Group)
end

function Group:rank() return self.at end
function Group:size() return self.n end
function Group:op_group() return self.all:op_group(self.number) end
function Group:split(color, options)
  options = options or {}
  local number = coroutine.yield("split", { self.number, color, options.key or 0,
    options.lane or 0 })
  return number and group(self.all, number)
end

-- an executor whose programs run when those of all ranks do
local function together(exec)
  return setmetatable({ compile = function(_, g)
    local prog = exec:compile(g)
    return setmetatable({ run = function() coroutine.yield("run", prog) end }, {
      __index = function(_, name)
        return function(_, ...) return prog[name](prog, ...) end
      end })
  end }, { __index = function(_, name)
    return function(_, ...) return exec[name](exec, ...) end
  end })
end

--- Runs `f` as each of `n` ranks. It gets its world, as moonreel.comm.world() gives one, a function
-- that makes an executor's programs run together with those of all others, and what the rank tells
-- others: reported() -> {"lane op count", ...} since the call before, and bytes.
---@param n integer
---@param f fun(world: table, together: fun(exec: mr.Exec): mr.Exec, reported: fun())
---@param lose table|nil  {rank, message}: from 0, the message of the rank that is not sent, counted
---   from when all have met
---@return table[]  what f returned, by rank from 1
function virtual.run(n, f, lose)
  local all <close> = new(n)
  if lose then
    all:lose(lose[1], lose[2])
  end
  local threads, asked, results = {}, {}, {}
  for i = 1, n do
    threads[i] = coroutine.create(function()
      return nil, f(group(all, i), together, function() return all:reported(i - 1) end)
    end)
  end
  local answers = {}
  repeat
    local what
    for i = 1, n do
      local good, kind, value = coroutine.resume(threads[i], answers[i])
      if not good then
        error(debug.traceback(threads[i], ("rank %d of %d: %s"):format(i - 1, n, tostring(kind))),
          0)
      end
      assert(i == 1 or kind == what, "ranks go different ways")
      what, asked[i], results[i] = kind, value, value
    end
    if what then
      answers = all[what](all, asked) or {}
    end
  until not what
  return results
end

return virtual
