--- Runs the program, or another one, to its end; standard error is in the output.
local luassert = require "luassert"
local process = require "moonreel.core.process"

local program = {}

---@param words string[]  the first one is the program's path
---@return table done      of process.run: output, exit, ...
function program.run(words)
  return process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', table.unpack(words) }, "",
    { deadline_s = 600, output_bytes = 1 << 20 })
end

--- The same for a program that must exit with 0.
---@param words string[]
---@return string output
function program.output(words)
  local done = program.run(words)
  luassert.equal(0, done.exit, done.output)
  return done.output
end

return program
