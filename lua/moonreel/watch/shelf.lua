--- The folder of a run's renderings: RUN/samples/stepN/SET/. It appears only when it is complete.
-- If another checkpoint replaces that of a step after a rollback, its set is written to SET.2 and
-- so on; nothing is overwritten.
-- @module moonreel.watch.shelf
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local run = require "moonreel.run"

local shelf = {}

--- The file in the set's folder that records what the set was made from.
shelf.ABOUT = "rendering.json"

--- The place of a checkpoint's set below a folder.
---@param folder string   folder with samples/: of a run, of a stage, or of --save-to
---@param asked table     step, set: its name; id: of the checkpoint; key: of what is asked for,
---   nil: any key
---@return string path    below the folder
---@return table|nil done contents of its rendering.json; nil: the set does not exist yet
function shelf.place(folder, asked)
  local number = 1
  while true do
    local path = ("samples/step%d/%s%s"):format(asked.step, asked.set,
      number > 1 and "." .. number or "")
    local at = folder .. "/" .. path
    if not base.exists(at) then
      return path
    end
    local good, about = pcall(function()
      return json.decode(base.read_file(at .. "/" .. shelf.ABOUT), at)
    end)
    if good and type(about) == "table" and about.id == asked.id
        and (about.key == asked.key or not asked.key) then
      return path, about
    end
    number = number + 1
  end
end

-- the folder for other files that a watcher of a set needs
local function own_folder(folder, set)
  local path = ("%s/samples/.watch/%s"):format(folder, set)
  base.make_dir(path)
  return path
end
shelf.own_folder = own_folder

local Work = {}
Work.__index = Work

--- Begins a set in a temporary folder, which is not taken for a finished set.
---@param folder string
---@param set string
---@return mr.WatchWork  path; finish(path, about); the caller closes it
function shelf.begin(folder, set)
  local path = own_folder(folder, set) .. "/new"
  base.remove_dir(path)
  base.make_dir(path)
  return setmetatable({ path = path, folder = folder }, Work)
end

--- Finishes the set: gives the complete folder its name.
---@param path string  result of shelf.place
---@param about table  for rendering.json: id, key and further facts
function Work:finish(path, about)
  base.replace_file(self.path .. "/" .. shelf.ABOUT, json.encode(about, { indent = 2 }) .. "\n")
  base.make_dir(self.folder .. "/" .. path:match "^(.*)/")
  base.rename(self.path, self.folder .. "/" .. path)
end

function Work:__close() base.remove_dir(self.path) end

--- Acquires the right to render a set of a run.
---@param folder string
---@param set string
---@return mr.RunLock|nil  nil: another process renders it; the caller closes the lock
---@return string|nil why  text of MR_E_LOCK in this case
function shelf.lock(folder, set)
  local good, lock = pcall(run.lock, own_folder(folder, set))
  if good then
    return lock
  elseif type(lock) == "table" and lock.code == "MR_E_LOCK" then
    return nil, lock.message
  end
  error(lock, 0)
end

return shelf
