--- The launches of this host and user, and the pages on which their ranks publish their state.
-- @module moonreel.life
local base = require "moonreel.core.base"
local core = require "moonreel.core.life"
local process = require "moonreel.core.process"

local life = {}

-- does a launch still have a running process?
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

--- The pages of running launches, the newest last. Pages of launches that were lost are removed.
---@return table[]  {page = mr.Life, about = table, path}
function life.launches()
  local folder, found = core.registry(), {}
  for _, name in ipairs(folder and base.list_dir(folder) or {}) do
    local path = folder .. "/" .. name
    -- a page may disappear during the search
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

-- the launches that `wanted` accepts
local function chosen(wanted)
  local found = {}
  for _, one in ipairs(life.launches()) do
    if wanted(one.about) then
      found[#found + 1] = one
    else
      one.page:close()
    end
  end
  return found
end

--- The launches that work on a run directory, or on its stages.
---@param dir string
---@return table[]  as for launches
function life.of_run(dir)
  local path = process.real_path(dir)
  return chosen(function(about)
    local at = about.dir
    return path and at and (at == path or at:sub(1, #path + 1) == path .. "/")
  end)
end

--- The launches with this process id, which they have before they have a run directory.
---@param pid integer
---@return table[]  as for launches
function life.of_launch(pid)
  return chosen(function(about) return about.pid == pid end)
end

--- The launches on this host for display, one row each.
---@return table[]  {launch: its process id; ranks; phase and step of the slowest rank; run: its
---   directory, nil: it has none yet; command}
function life.rows()
  local phases, rows = {}, {}
  for i, phase in ipairs(require("moonreel.life.watch").phases) do
    phases[phase] = i
  end
  for i, one in ipairs(life.launches()) do
    local about, last = one.about, nil
    for rank = about.first, about.first + about.ranks - 1 do
      local r = one.page:rank(rank)
      if not last or r.step < last.step
          or r.step == last.step and phases[r.phase] < phases[last.phase] then
        last = r
      end
    end
    local good, words = pcall(base.read_file, ("/proc/%d/cmdline"):format(about.pid))
    rows[i] = { launch = about.pid, ranks = ("%d of %d"):format(about.ranks, about.world),
      phase = last.phase, step = last.step, run = about.dir,
      command = good and words:gsub("%z$", ""):gsub("%z", " ") or nil }
    one.page:close()
  end
  return rows
end

return life
