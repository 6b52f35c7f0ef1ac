--- A run of the program that gets a signal at a given point of its code, never after a time.
local process = require "moonreel.core.process"

-- os.execute would block INT for this process
local CODE = [[
local function send() io.popen("kill -%s $PPID"):close() end
%s
os.exit(require("moonreel.cli.dispatch").run(arg), true)]]

--- Runs a command.
---@param signal string  "TERM"
---@param where string   Lua: changes modules so that they call send() at the right moment
---@param words string[] the command line
---@return table  as of process.run; output holds standard error too
return function(signal, where, words)
  return process.run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh", process.program(), "-e",
    CODE:format(signal, where), table.unpack(words) }, "",
    { deadline_s = 600, output_bytes = 1 << 20 })
end
