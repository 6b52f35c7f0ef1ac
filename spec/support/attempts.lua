--- Bakes the given recipes and reports the resources of each child: a list of {exit, message,
-- output | settings, cpu_s, peak_bytes}. It is a program of its own, because Linux counts the
-- memory of the starting process as the child's.
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"

local run, done = process.run, nil
process.run = function(...)
  done = run(...)
  return done
end

local out = json.array()
for i = 1, #arg do
  local ok, result = pcall(settings.bake, arg[i])
  out[i] = { exit = ok and 0 or type(result) == "table" and result.exit or -1,
    message = not ok and tostring(result) or nil,
    settings = ok and json.decode(result:to_json()).settings or nil,
      output = not ok and done.output or nil, cpu_s = done.cpu_s, peak_bytes = done.peak_bytes }
end
print(json.encode(out))
