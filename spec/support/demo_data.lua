--- The demo's clips and index in a scratch directory, made once per process: demo_data.path() ->
-- NAME.mrx.
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local process = require "moonreel.core.process"

local demo_data = {}

local made

--- Run this program with arguments; raises when it fails.
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

--- A scratch directory that lives as long as the process wants it.
function demo_data.scratch()
  local dir = os.tmpname()
  os.remove(dir)
  base.make_dir(dir)
  return dir
end

function demo_data.path()
  if not made then
    made = demo_data.scratch()
    demo_data.moonreel("datasets/demo/build.lua", made .. "/clips")
    demo_data.moonreel("data", "ingest", made .. "/clips/demo.csv", "-o", made .. "/demo.mrx")
  end
  return made .. "/demo.mrx"
end

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

--- Remove what path() made.
function demo_data.remove()
  if made then
    os.execute("rm -r '" .. made .. "'")
  end
  made = nil
end

return demo_data
