--- The state of long work: one line that is rewritten on a terminal, plain lines elsewhere.
-- @module moonreel.cli.progress
local base = require "moonreel.core.base"

local progress = {}
local Progress = {}
Progress.__index = Progress

--- "1:02:03", "2:03", "0.4 s"
---@param seconds number
function progress.time_text(seconds)
  if seconds ~= seconds or seconds == math.huge or seconds < 0 then return "-" end
  if seconds < 10 then return ("%.1f s"):format(seconds) end
  local s = math.floor(seconds + 0.5)
  if s < 3600 then return ("%d:%02d"):format(s // 60, s % 60) end
  return ("%d:%02d:%02d"):format(s // 3600, s // 60 % 60, s % 60)
end

--- Start. Nothing is printed before the first update.
---@param options table  {total = count of the whole work or nil, done = where it starts (0), unit = "step",
--   every_s = least seconds between two rewritten lines (0.1), plain_s = between two plain lines (10),
--   terminal = nil to look at stderr, out = io.stderr, now = clock in seconds}
---@return table
function progress.new(options)
  local self = setmetatable({ total = options.total, unit = options.unit or "step", out = options.out or io.stderr,
    now = options.now or base.now_s, every_s = options.every_s or 0.1, plain_s = options.plain_s or 10 }, Progress)
  self.terminal = options.terminal
  if self.terminal == nil then self.terminal = base.is_terminal(2) and os.getenv("TERM") ~= "dumb" end
  self.first_done = options.done or 0
  self.first_s = self.now()
  self.last_s = -math.huge
  return self
end

-- figures in the order of `fields`: {{"loss", 0.123, "%.4f"}, ...}
local function line(self, done, fields)
  local elapsed, since = self.now() - self.first_s, done - self.first_done
  local rate = elapsed > 0 and since / elapsed or 0
  local parts = { self.total and ("%s %d/%d"):format(self.unit, done, self.total) or ("%s %d"):format(self.unit, done) }
  for _, field in ipairs(fields or {}) do
    if field[2] ~= nil then parts[#parts + 1] = ("%s %s"):format(field[1], (field[3] or "%s"):format(field[2])) end
  end
  if since > 0 and rate > 0 then
    parts[#parts + 1] = rate >= 1 and ("%.2f %s/s"):format(rate, self.unit) or ("%.2f s/%s"):format(1 / rate, self.unit)
    if self.total then parts[#parts + 1] = "left " .. progress.time_text((self.total - done) / rate) end
  end
  return table.concat(parts, "  ")
end

--- Tell how far the work is. Cheap to call often: it prints only when it is time, or at the end.
---@param done number
---@param fields table[]|nil  {{name, value, format}, ...}, e.g. {{"loss", 0.12, "%.4f"}, {"data", 0.01, "%.2f s"}}
---@param force boolean|nil   print in any case
function Progress:update(done, fields, force)
  local now = self.now()
  local due = now - self.last_s >= (self.terminal and self.every_s or self.plain_s)
  if not (due or force or done == self.total) then return end
  self.last_s = now
  local text = line(self, done, fields)
  if self.terminal then
    self.out:write("\r\27[K", text)
    self.open = true
  else
    self.out:write(text, "\n")
  end
  self.out:flush()
end

--- Print a line of its own above the progress line.
---@param text string
function Progress:note(text)
  if self.open then self.out:write("\r\27[K") end
  self.open = false
  self.out:write(text, "\n")
  self.out:flush()
end

--- End: the line stays.
function Progress:close()
  if self.open then self.out:write("\n") end
  self.open = false
  self.out:flush()
end

return progress
