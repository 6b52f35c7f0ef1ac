--- Programs that run in parallel with a spec, each in a session of its own. stop() ends all
-- programs that a spec leaves running, by a failed assertion or by design.
local base = require "moonreel.core.base"
local process = require "moonreel.core.process"

local background = {}

local WAIT_S <const> = 120

-- sessions that were started
local sessions = {}

--- Starts a program; its output and errors go to a file, which exists and is empty when this
-- returns.
---@param log string     path
---@param ... string     words of the command line
function background.start(log, ...)
  base.replace_file(log, "")
  local done = process.run({ "/bin/sh", "-c",
    'log=$1; shift; setsid "$@" < /dev/null >> "$log" 2>&1 & echo $!', "sh", log, ... }, "",
    { deadline_s = WAIT_S })
  sessions[#sessions + 1] = tonumber(done.output)
end

--- Waits until a function returns a value.
---@param what string      of the awaited thing, for the error
---@param log string       file that the error shows
---@param find function    returns it, or nil while it is missing
---@param wait_s number|nil the longest wait
function background.await(what, log, find, wait_s)
  local began = base.now_s()
  while true do
    local found = find()
    if found then
      return found
    end
    if base.now_s() > began + (wait_s or WAIT_S) then
      error(("%s does not come:\n%s"):format(what, base.read_file(log)), 2)
    end
    base.sleep(0.002)
  end
end

-- the session of a process; nil: it is gone, or a zombie
local function session_of(pid)
  local good, text = pcall(base.read_file, ("/proc/%s/stat"):format(pid))
  local state, session = (good and text or ""):match "%) (%a) %d+ %d+ (%d+)"
  return state ~= "Z" and tonumber(session) or nil
end

local function pids_of(session)
  local pids = {}
  for _, pid in ipairs(base.list_dir "/proc") do
    if pid:find "^%d+$" and session_of(pid) == session then
      pids[#pids + 1] = pid
    end
  end
  return pids
end

--- The processes of the program that was started last.
---@return string[] pids
function background.pids() return pids_of(sessions[#sessions]) end

-- ends all processes of a session; false: there were none
local function kill(session)
  local pids = pids_of(session)
  if #pids > 0 then
    os.execute("kill -9 " .. table.concat(pids, " ") .. " 2> /dev/null")
  end
  return #pids > 0
end

--- Ends what remains of all programs that were started.
function background.stop()
  for _, session in ipairs(sessions) do
    while kill(session) do
      base.sleep(0.002)
    end
  end
  sessions = {}
end

return background
