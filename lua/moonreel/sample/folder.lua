--- Chooses where `moonreel sample` writes its files, so that no earlier rendering is lost: into the
-- folder that the user names, where it replaces files only with --overwrite; otherwise into the
-- next free number below samples/.
-- @module moonreel.sample.folder
local base = require "moonreel.core.base"

local folder = {}

local Folder = {}
Folder.__index = Folder

-- a folder with a free number, also if two processes look at the same time
local function next_number(root)
  base.make_dir(root)
  local number = 0
  for _, name in ipairs(base.list_dir(root)) do
    number = math.max(number, math.tointeger(tonumber(name:match("^%d+$"))) or 0)
  end
  local path
  repeat
    number = number + 1
    path = ("%s/%03d"):format(root, number)
  until base.new_dir(path)
  return path
end

--- The path; the folder is made when the path is first needed.
---@return string
function Folder:path()
  if not self.made then
    local fresh = not (self.named and base.exists(self.named))
    local made = self.named or next_number(self.root)
    base.make_dir(made)
    self.fresh, self.made = fresh, made
  end
  return self.made
end

--- Refuses to replace files.
---@param names string[]  names of the files to write into it
function Folder:keep(names)
  for _, name in ipairs(self.named and names or {}) do
    local path = self.named .. "/" .. name
    if base.exists(path) then
      base.raise("MR_E_USAGE", ("sample: %s exists already, from an earlier rendering; expected "
        .. "an unused name; try: another --out or --sample-name, --overwrite, or no --out for "
        .. "a numbered folder below %s/"):format(path, self.root))
    end
  end
end

--- Removes a folder into which no file was written.
function Folder:__close()
  if self.fresh then
    os.remove(self.made)
  end
end

--- Chooses a folder; it is not made yet.
---@param named string|nil  the value of --out or sampling.save_dir
---@param root string|nil   folder of the numbered ones (samples)
---@return mr.RenderFolder  path(), keep(names); to be closed
function folder.new(named, root)
  return setmetatable({ named = named, root = root or "samples" }, Folder)
end

return folder
