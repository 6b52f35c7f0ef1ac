--- Progress output of a run: a line that is rewritten on a terminal, plain lines elsewhere, and all
-- lines in a file of the run.
-- @module moonreel.trainer.progress
local base = require "moonreel.core.base"
local output = require "moonreel.text.output"
local words = require "moonreel.runs.words"

local progress = {}

local Progress = {}
Progress.__index = Progress

--- Seconds as text for people: 42s, 3m10s, 2h05m.
function progress.duration(s)
  if s < 60 then
    return ("%.0fs"):format(s)
  end
  if s < 3600 then
    return ("%dm%02ds"):format(s // 60, s % 60 // 1)
  end
  return ("%dh%02dm"):format(s // 3600, s % 3600 // 60)
end

--- Bytes as text for people.
function progress.bytes(n)
  local units = {"B", "KiB", "MiB", "GiB", "TiB"}
  local i = 1
  while n >= 1024 and i < #units do
    n, i = n / 1024, i + 1
  end
  return (i == 1 and "%d %s" or "%.1f %s"):format(n, units[i])
end

--- Makes the output of a run.
---@param total integer    steps of the run; 0: not known
---@param every integer    steps between plain lines
---@param write function|nil takes each line; nil: standard output, where a terminal gets a line
---   that is rewritten
---@param now (fun(): number)|nil  a clock in seconds; nil: the system's
function progress.new(total, every, write, now)
  return setmetatable({total = total, every = every, live = not write and base.is_terminal(1),
    shown = false, write = write, now = now or base.now_s, steps = 0}, Progress)
end

-- a line with the time in front, if lines begin with the time
local function dated(self, line)
  return self.dates and words.time(base.wall_s()) .. "  " .. line or line
end

-- adds a line to the file; lines wait until the file is open
local function keep(self, line)
  if not self.file then
    table.insert(self.waiting or {}, line)
    return
  end
  local good, why = self.file:write(line, "\n")
  if good then
    good, why = self.file:flush()
  end
  if not good then
    self:close()
    self:say(("%s cannot be written: %s; later lines are not in it"):format(self.path, why))
  end
end

--- From now on lines begin with the time, and are kept for the file of keep_in.
function Progress:date()
  self.dates, self.waiting = true, self.waiting or {}
end

--- Writes lines into a file, too: those that wait, and later ones.
---@param path string  its folder is made; earlier contents are kept
function Progress:keep_in(path)
  local waiting = self.waiting or {}
  base.make_dir(path:match "^(.*)/")
  local file, why = io.open(path, "a")
  self.path, self.file, self.waiting = path, file, nil
  if not file then
    return self:say(("%s cannot be written: %s"):format(path, why))
  end
  for _, line in ipairs(waiting) do
    keep(self, line)
  end
end

--- Closes the file.
function Progress:close()
  if self.file then
    self.file:close()
    self.file = nil
  end
end

-- Writes texts to standard output. When its reader is gone, `lost` has the reason.
local function put(self, ...)
  local good, why = output.write(io.stdout, ...)
  if not good then
    self.lost, self.live = why, false
  end
end

-- passes a line to its receiver
local function line_out(self, line)
  local with_clock = dated(self, line)
  keep(self, with_clock)
  if self.write then
    self.write(line)
  else
    put(self, with_clock, "\n")
  end
end

-- the line for a step
local function text(self, s)
  local parts = {("step %d%s"):format(s.step, self.total > 0 and "/" .. self.total or ""),
    ("loss %.4f"):format(s.loss),
    ("norm %.3g"):format(s.grad_norm), ("lr %.3g"):format(s.lr)}
  if self.mean_s then
    parts[#parts + 1] = ("%.2f steps/s"):format(1 / self.mean_s)
    if self.total > 0 then
      parts[#parts + 1] = progress.duration((self.total - s.step) * self.mean_s) .. " left"
    end
  end
  parts[#parts + 1] = ("data wait %.1f ms"):format(s.data_wait_s * 1000)
  return table.concat(parts, "  ")
end

-- weight of the last step in the mean; alternating long and short steps change it by a few percent
local LAST <const> = 0.02

--- Prints a step: step, loss, grad_norm, lr, data_wait_s.
function Progress:step(s)
  -- The mean wall time from one step to the next. It includes waits, saves and compilations, except
  -- those before the first step.
  local now = self.now()
  if self.at and now > self.at then
    self.steps = self.steps + 1
    local weight = math.max(1 / self.steps, LAST)
    self.mean_s = (1 - weight) * (self.mean_s or 0) + weight * (now - self.at)
  end
  self.at = now
  local due = s.step % self.every == 0 or s.step == 1
  if self.live then
    local line = dated(self, text(self, s))
    put(self, "\r", line, "\27[K")
    self.shown = true
    if due then
      keep(self, line)
    end
  elseif due then
    line_out(self, text(self, s))
  end
end

--- Prints a line of its own.
function Progress:say(line)
  if self.shown then
    put(self, "\n")
    self.shown = false
  end
  line_out(self, line)
end

--- Writes a line to the file only, because others print it.
function Progress:note(line) keep(self, dated(self, line)) end

--- Moves the cursor to a new line.
function Progress:finish()
  if self.shown then
    put(self, "\n")
  end
  self.shown = false
end

return progress
