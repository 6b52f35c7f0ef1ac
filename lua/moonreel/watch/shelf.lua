--- The folder of a run's renderings: RUN/samples/stepN/SET/, which exists completely or not at all.
-- A checkpoint that replaces another one of its step, after a rollback, gets SET.2 and so on;
-- nothing is replaced.
-- @module moonreel.watch.shelf
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local run = require "moonreel.run"

local shelf = {}

--- The file that says of what a set was made; it lies in the set's folder.
shelf.ABOUT = "rendering.json"

--- The place of a checkpoint's set below a folder.
---@param folder string   that has samples/: of a run, of a stage, or of --save-to
---@param asked table     step, set: its name; id: of the checkpoint; key: of what is asked for,
---   nil: whatever that was
---@return string path    below the folder
---@return table|nil done what its rendering.json says; nil: nothing is there yet
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

-- the folder of what a watcher of a set needs in addition to its results
local function own_folder(folder, set)
  local path = ("%s/samples/.watch/%s"):format(folder, set)
  base.make_dir(path)
  return path
end
shelf.own_folder = own_folder

local Work = {}
Work.__index = Work

--- Begin a set: a folder that is not taken for a finished one.
---@param folder string
---@param set string
---@return mr.WatchWork  path; finish(path, about), to be closed
function shelf.begin(folder, set)
  local path = own_folder(folder, set) .. "/new"
  base.remove_dir(path)
  base.make_dir(path)
  return setmetatable({ path = path, folder = folder }, Work)
end

--- Everything is there: give it its name.
---@param path string  of shelf.place
---@param about table  for rendering.json: id, key and what else is known
function Work:finish(path, about)
  base.replace_file(self.path .. "/" .. shelf.ABOUT, json.encode(about, { indent = 2 }) .. "\n")
  base.make_dir(self.folder .. "/" .. path:match "^(.*)/")
  base.rename(self.path, self.folder .. "/" .. path)
end

function Work:__close() base.remove_dir(self.path) end

--- Become the one that renders a set of a run.
---@param folder string
---@param set string
---@return mr.RunLock|nil  nil: somebody else does; to be closed
---@return string|nil why  MR_E_LOCK's text then
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
