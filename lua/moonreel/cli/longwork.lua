--- Long work: prints progress on stderr, and stops on a signal.
-- @module moonreel.cli.longwork
local base = require "moonreel.core.base"
local signal = require "moonreel.core.signal"

local longwork = {}

-- a tick raises this when a signal came
local stopped = {}

--- One line that is redrawn on a terminal; elsewhere a line appears every ten seconds.
---@return fun(text: function, finished?: boolean)  shows what text() says
function longwork.line()
  local last, terminal = base.now_s(), base.is_terminal(2)
  return function(text, finished)
    local now = base.now_s()
    if now - last < (terminal and 0.1 or 10) and not (finished and terminal) then
      return
    end
    last = now
    io.stderr:write(terminal and "\r\27[K" or "", text(), terminal and not finished and "" or "\n")
  end
end

--- Text for progress: how much is done, at which rate, and how long the rest will take.
---@param done integer
---@param total integer
---@param unit string      "files"
---@param seconds number   since the beginning
---@param before? integer  done before the beginning
---@return string
function longwork.words(done, total, unit, seconds, before)
  local rate = (done - (before or 0)) / math.max(seconds, 1e-3)
  return ("%d of %d %s, %.0f/s, %.0f s left"):format(done, total, unit, rate,
    rate > 0 and (total - done) / rate or 0)
end

--- Runs work(tick). tick(done, total, text?) shows the progress, or the result of text(). When a
-- signal has come it does not return.
---@param work fun(tick: function): any
---@param unit string   what is counted: "rows"
---@param left string|fun(): string  what remains, for people: "nothing was written"
---@param calls? boolean true: a signal also ends long calls of the core; otherwise work must tick
---   often
---@return any result   nil when a signal ended it
---@return integer|nil code  the exit code, when a signal ended it
function longwork.run(work, unit, left, calls)
  local began, write = base.now_s(), longwork.line()
  local function tick(done, total, text)
    -- without a total the end is not known yet
    local finished = done == total and total > 0
    write(text or function() return longwork.words(done, total, unit, base.now_s() - began) end,
      finished)
    if signal.pending() and not finished then
      error(stopped)
    end
  end
  signal.catch(calls)
  local ok, result = pcall(work, tick)
  local number = signal.pending()
  signal.release()
  if ok then
    return result
  end
  if result == stopped or number and type(result) == "table" and result.code == "MR_E_STOPPED" then
    io.stderr:write("moonreel: stopped by a signal; ",
      type(left) == "function" and left() or left, "\n")
    return nil, 128 + number
  end
  error(result, 0)
end

return longwork
