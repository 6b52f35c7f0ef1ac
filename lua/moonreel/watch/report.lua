--- Messages of a watcher to a run. They become lines of the run's journal, which has one writer.
-- They wait in files in samples/.watch/ until this writer takes them: the run during training, the
-- watcher after it.
-- @module moonreel.watch.report
local base = require "moonreel.core.base"
local glance = require "moonreel.runs.glance"
local json = require "moonreel.core.json"
local run = require "moonreel.run"
local tail = require "moonreel.runs.tail"

local report = {}

local function folder_of(dir) return dir .. "/samples/.watch/lines" end

--- Leaves a line for the writer.
---@param dir string   of the run or stage
---@param name string  name of the line; a second line with the same name replaces it
---@param line table   kind = "samples"; `path`: folder that must exist for the line to count
function report.leave(dir, name, line)
  base.make_dir(folder_of(dir))
  line.report = name
  base.replace_file(("%s/%s.json"):format(folder_of(dir), name), json.encode(line))
end

-- waiting lines that count: {file, line}
local function waiting(dir)
  local good, names = pcall(base.list_dir, folder_of(dir))
  local list = {}
  for _, name in ipairs(good and names or {}) do
    local file = folder_of(dir) .. "/" .. name
    local line = name:find "%.json$" and tail.decode(base.read_file(file))
    if line and (not line.path or base.exists(dir .. "/" .. tostring(line.path))) then
      list[#list + 1] = { file = file, line = line }
    end
  end
  table.sort(list, function(a, b) return (a.line.wall or 0) < (b.line.wall or 0) end)
  return list
end

--- Delivers the waiting lines. A line that is already in the journal, because its writer was killed
-- in between, is not written again.
---@param dir string
---@param append fun(line: table)  appends a line to the journal of `dir`
---@return table[] lines            the lines that were written
function report.deliver(dir, append)
  local written = {}
  for _, one in ipairs(waiting(dir)) do
    local mark = '"report":' .. json.encode(one.line.report)
    if not tail.newest_with(dir .. "/journal.jsonl", mark) then
      append(one.line)
      written[#written + 1] = one.line
    end
    os.remove(one.file)
  end
  return written
end

--- Delivers the lines from a watcher, which becomes the writer of a run that has ended in order and
-- that no other process writes. In all other cases the lines wait for the next launch.
---@param dir string
function report.deliver_late(dir)
  local state = glance.of { name = dir, dir = dir }.state
  if #waiting(dir) == 0 or state == "running" or state == "dead" then
    return
  end
  local good, lock = pcall(run.lock, dir)
  if good then
    local held <close> = lock -- luacheck: ignore 211
    local journal <close> = run.journal(dir)
    report.deliver(dir, function(line) journal:append(line) end)
    journal:sync()
  end
end

return report
