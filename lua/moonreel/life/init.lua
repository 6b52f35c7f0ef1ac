--- Launches of this host and user: the pages on which their ranks tell of themselves.
-- @module moonreel.life
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"
local process = require "moonreel.core.process"

local life = {}

-- does a launch still have a process?
local function lives(page, about)
  if core.state(about.pid, about.start) then
    return true
  end
  for rank = about.first, about.first + about.ranks - 1 do
    if page:rank(rank).state then
      return true
    end
  end
  return #core.processes(about.token, about.uid) > 0
end

--- Pages of launches that live, the newest last. Those of launches that were lost are removed.
---@return table[]  {page = mr.Life, about = table, path}
function life.launches()
  local folder, found = core.registry(), {}
  for _, name in ipairs(folder and base.list_dir(folder) or {}) do
    local path = folder .. "/" .. name
    -- one may go while we look
    local good, page = pcall(core.open, path)
    if good then
      local about = page:about()
      if lives(page, about) then
        found[#found + 1] = { page = page, about = about, path = path }
      else
        page:close()
        os.remove(path)
      end
    end
  end
  table.sort(found, function(a, b) return a.about.start < b.about.start end)
  return found
end

--- Launches that work for a run directory, or for stages of it.
---@param dir string
---@return table[]  as of launches
function life.of_run(dir)
  local path, found = process.real_path(dir), {}
  for _, one in ipairs(life.launches()) do
    local at = one.about.dir
    if path and at and (at == path or at:sub(1, #path + 1) == path .. "/") then
      found[#found + 1] = one
    else
      one.page:close()
    end
  end
  return found
end

return life
