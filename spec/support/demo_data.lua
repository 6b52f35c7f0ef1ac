--- The demo's clips and index in a scratch directory: demo_data.path() -> NAME.mrx. They are made
-- once for all specs (MOONREEL_SPEC_SHARED, see busted.lua) and copied for each file of specs.
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local process = require "moonreel.core.process"

local demo_data = {}

local made = {}

--- Runs this program with arguments; raises when it fails.
---@return string output
function demo_data.moonreel(...)
  local result = process.run({process.program(), ...}, "",
    {deadline_s = 600, output_bytes = 1 << 24})
  if result.exit ~= 0 then
    error(("%s: exit %s\n%s"):format(table.concat({...}, " "), tostring(result.exit),
      result.output), 2)
  end
  return result.output
end

--- A scratch directory that lives as long as the process.
function demo_data.scratch()
  local dir = os.tmpname()
  os.remove(dir)
  base.make_dir(dir)
  return dir
end

-- one process makes them, others that need them meanwhile wait for it
local MAKE = [[
test -e "$1" || {
  "$0" datasets/demo/build.lua "$1.new/clips" 1 $2 &&
    "$0" data ingest "$1.new/clips/demo.csv" -o "$1.new/demo.mrx" && mv "$1.new" "$1"
} 2>&1
]]

local function shared(name, frames)
  local all = os.getenv("MOONREEL_SPEC_SHARED") .. "/" .. name
  local done = process.run({"/usr/bin/flock", all .. ".lock", "/bin/sh", "-c", MAKE,
    process.program(), all, frames}, "", {deadline_s = 600, output_bytes = 1 << 24})
  if done.exit ~= 0 then
    error(("the demo's data: exit %s\n%s"):format(tostring(done.exit), done.output))
  end
  return all
end

local function path(name, frames)
  if not made[name] then
    made[name] = demo_data.scratch()
    assert(os.execute(("cp -a '%s/.' '%s'"):format(shared(name, frames), made[name])))
  end
  return made[name] .. "/demo.mrx"
end

function demo_data.path() return path("demo", "6") end

--- The same with clips of 18 frames: Open-Sora 1.2 trains on videos of 17 and more, of longer ones.
function demo_data.long_path() return path("long", "18") end

--- The newest run directory of a name.
function demo_data.run_dir(outputs, name)
  local found
  for _, entry in ipairs(base.list_dir(outputs)) do
    if entry:match("^%d+%-(.*)$") == name then
      found = outputs .. "/" .. entry
    end
  end
  return found
end

--- The newest checkpoint of a run, opened.
---@param outputs string
---@param name string
---@return mr.Checkpoint  close it
function demo_data.newest(outputs, name)
  local dir = demo_data.run_dir(outputs, name)
  return ckpt.open(ckpt.dir(dir, ckpt.steps(dir)[1]))
end

--- Removes the files of path() and long_path().
function demo_data.remove()
  for _, dir in pairs(made) do
    os.execute("rm -r '" .. dir .. "'")
  end
  made = {}
end

return demo_data
