--- Keeps checkpoints until they are rendered, even if the run removes them: samples/.watch/SET/
-- gets hard links to their files. On a file system without hard links a pin only records the step,
-- and the checkpoint is rendered if it still exists.
-- @module moonreel.watch.pins
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local shelf = require "moonreel.watch.shelf"

local pins = {}

local function name_of(step) return ("step-%012d"):format(step) end

-- links all files of a checkpoint, the manifest last; false: the checkpoint no longer exists
local function link_all(path, into)
  local good, names = pcall(base.list_dir, path)
  for _, name in ipairs(good and names or {}) do
    if name ~= "MANIFEST.json" and not base.link(path .. "/" .. name, into .. "/" .. name) then
      return base.exists(path .. "/" .. name)
    end
  end
  return base.link(path .. "/MANIFEST.json", into .. "/MANIFEST.json")
    or base.exists(path .. "/MANIFEST.json")
end

-- does a process still run? an ended process is listed until its parent has read its exit status
local function goes_on(pid)
  local good, text = pcall(base.read_file, ("/proc/%s/stat"):format(pid))
  return good and not text:find "%) [ZX] "
end

-- removes what a killed process left unfinished
local function sweep(folder)
  for _, name in ipairs(base.list_dir(folder)) do
    local pid = name:match "^%.step%-%d+%-(%d+)$"
    if pid and not goes_on(pid) then
      base.remove_dir(folder .. "/" .. name)
    end
  end
end

--- Keeps a checkpoint for a set. A pin that exists stays unchanged, unless another checkpoint has
-- replaced the one of this step.
---@param dir string     of the run or stage
---@param set string
---@param step integer
---@return boolean       false: the checkpoint no longer exists
function pins.add(dir, set, step)
  local folder = shelf.own_folder(dir, set)
  local new = ("%s/.%s-%d"):format(folder, name_of(step), base.pid())
  sweep(folder)
  base.remove_dir(new)
  base.make_dir(new)
  local there = link_all(ckpt.dir(dir, step), new)
  if there then
    base.remove_dir(folder .. "/" .. name_of(step))
    base.rename(new, folder .. "/" .. name_of(step))
  else
    base.remove_dir(new)
  end
  return there
end

--- The checkpoints that are kept for a set.
---@param dir string
---@param set string
---@return table[]  {step, path}, oldest first
function pins.list(dir, set)
  local folder, list = ("%s/samples/.watch/%s"):format(dir, set), {}
  local good, names = pcall(base.list_dir, folder)
  for _, name in ipairs(good and names or {}) do
    local step = math.tointeger(tonumber(name:match "^step%-(%d+)$"))
    local path = folder .. "/" .. name
    if step then
      list[#list + 1] = { step = step, pin = path,
        path = base.exists(path .. "/MANIFEST.json") and path or ckpt.dir(dir, step) }
    end
  end
  return list
end

--- Releases a checkpoint, but not another checkpoint that was kept in its place since a rollback.
---@param one table  entry of pins.list; id: of its manifest, if it was read
function pins.drop(one)
  local good, text = pcall(base.read_file, one.pin .. "/MANIFEST.json")
  if not (good and one.id and base.hash128(text) ~= one.id) then
    base.remove_dir(one.pin)
  end
end

return pins
