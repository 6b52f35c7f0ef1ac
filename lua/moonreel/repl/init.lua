--- The prompt: reads input, runs it, prints the results. Ref: recipes.md 10.
-- @module moonreel.repl
local edit = require "moonreel.core.edit"
local base = require "moonreel.core.base"
local chunk = require "moonreel.repl.chunk"
local names = require "moonreel.repl.names"
local show = require "moonreel.repl.show"

local repl = {}

local Session = {}
Session.__index = Session

--- Creates a session. It does not print or read by itself.
---@param ranks mr.repl.Ranks|nil  ranks that run the same input; nil: the session is alone
---@param is_command (fun(name: string): any)|nil  is this a command of the shell? nil: there are no
---   commands
---@return table session  {env, chunk}
function repl.new(ranks, is_command)
  local env = names.environment()
  local session = setmetatable({ env = env, chunk = chunk.new(env), pending = nil, ranks = ranks,
    is_command = is_command, leads = not ranks or ranks.rank == 0 }, Session)
  env.trace = function() print(session.last_trace or "there is no failure yet") end
  return session
end

local function message_of(value)
  if type(value) == "table" and value.message then
    return tostring(value.message)
  end
  return type(value) == "string" and value or "error value: " .. tostring(value)
end

-- the answer to an unknown name: names that the user may have meant
local function unknown(session, name)
  local known = session.chunk:locals()
  for _, place in ipairs { session.env, _G } do
    for key in pairs(place) do
      known[#known + 1] = type(key) == "string" and key or nil
    end
  end
  return names.unknown(name, known, session.is_command)
end

-- The message about a failure. An unknown name is reported as such; for a Lua error inside a
-- function of moonreel, the message shows how to call the function.
local function text_of(session, failure)
  local text = message_of(failure)
  local where, name = text:match("^(prompt:%d+: )attempt to .- %(global '([%w_]+)'%)$")
  if name and session.env[name] == nil then
    return where .. unknown(session, name)
  end
  local inside = text:gsub("^moonreel/[%w_/]+%.lua:%d+: ", "")
  if not (inside:find("^attempt to ") or inside:find("^bad argument ") and inside ~= text) then
    return inside
  end
  if inside:find("local 'self'", 1, true) then
    return "a method is called without its object; try a colon: ckpt:ls()"
  end
  local usage = session.called and require("moonreel.repl.help").text(session.env, session.called)
  local head = usage and (usage:match("^[^\n]*function [%w_]*[.:]?([%w_]+%b())")
    or usage:match("^[^\n]*"))
  return ("wrong arguments%s; trace() shows where it failed"):format(head and " for " .. head or "")
end

-- the function that the input called, seen from an error handler
local function called()
  local inner
  for level = 3, math.huge do
    local info = debug.getinfo(level, "Sf")
    if not info or info.source == "=prompt" or info.source == "@moonreel/repl/init.lua" then
      return inner
    end
    inner = info.func
  end
end

-- keeps the call stack for trace()
local function handler(session)
  return function(value)
    session.called = called()
    session.last_trace = debug.traceback(message_of(value), 2):gsub("\n\t%[C%]: in function "
      .. "'moonreel.core.edit.guard'.*", "")
    return value
  end
end

--- Runs one line of input.
---@param line string
---@return string state  "done", "more" (input is incomplete), "failed", "stopped" (Ctrl-C) or
---   "left"
function Session:feed(line)
  local text = self.pending and self.pending .. "\n" .. line or names.asked(line) or line
  if text:match("^%s*$") then
    self.pending = nil
    return "done"
  end
  local run, problem = self.chunk:compile(text)
  if not run and problem == "more" then
    self.pending = text
    return "more"
  end
  self.pending = nil
  if not run then
    print(problem .. names.of_shell(text, self.is_command))
    return "failed"
  end
  -- printing is also guarded, because it may read a large file
  local results = table.pack(edit.guard(function()
    if self.ranks and self.leads then
      self.ranks:tell(text)
    end
    local out = table.pack(run())
    if out.n == 1 and names.acts(out[1]) then
      out = table.pack(out[1]())
    end
    local bare = text:match("^%s*([%a_][%w_]*)%s*$")
    if bare and out.n == 1 and out[1] == nil and bare ~= "nil" and bare ~= "_"
        and not select(2, self.chunk:get(bare)) then
      print("nil: " .. unknown(self, bare))
      return
    end
    if out.n > 0 then
      self.env._ = out[1]
    end
    if self.leads then
      show.results(out)
    end
  end, handler(self)))
  if results[1] then
    return "done"
  end
  local failure = results[2]
  if failure == names.left then
    return "left"
  end
  print((self.leads and "" or ("rank %d: "):format(self.ranks.rank))
    .. require "moonreel.text.clean"(text_of(self, failure)):gsub("\\x0a", "\n"):gsub("\\x09", "  ")
    .. "")
  return type(failure) == "table" and failure.code == "MR_E_STOPPED" and "stopped" or "failed"
end

-- the file for the input history: MOONREEL_HISTORY, or a file in the user's state folder; nil: no
-- file
local function history_path()
  local path = os.getenv "MOONREEL_HISTORY"
  if path then
    return path ~= "" and path or nil
  end
  local home = os.getenv "HOME"
  local state = os.getenv "XDG_STATE_HOME" or home and home .. "/.local/state"
  if not state then
    return nil
  end
  local ok = pcall(base.make_dir, state .. "/moonreel")
  return ok and state .. "/moonreel/history" or nil
end

--- Reads, runs and prints until the input ends.
---@param session table
---@return integer exit code
function repl.run(session)
  local ranks = session.ranks
  if not session.leads then
    ranks:follow(function(text) session:feed(text) end)
    return 0
  end
  local terminal = base.is_terminal(0) and base.is_terminal(1)
  local path = terminal and history_path() or nil
  if path then
    local ok, problem = pcall(edit.history, path)
    if not ok then
      print("the input history is not saved: " .. tostring(problem))
      path = nil
    end
  end
  edit.complete(function(line, from, to)
    return require("moonreel.repl.complete").words(session, line, from, to)
  end)
  if terminal then
    -- asked now, before the user types: a question at the first picture would consume pasted lines
    pcall(require("moonreel.look.picture").graphics)
    print(("moonreel %s   help() for help, Ctrl-D to leave%s"):format(
      require("moonreel.app").version,
      ranks and ("; %d ranks run what is typed"):format(ranks.size) or ""))
  end
  while true do
    io.stdout:flush()
    local line, why = edit.line(session.pending and ".. " or "> ")
    if line then
      if terminal and line:find("%S") then
        pcall(edit.remember, path, line)
      end
    end
    if line and session:feed(line) == "left" or not line and why ~= "stopped" then
      if terminal and not line then
        print()
      end
      if ranks then
        pcall(ranks.tell, ranks)
      end
      return 0
    end
    if not line then
      session.pending = nil
    end
  end
end

return repl
