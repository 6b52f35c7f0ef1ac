--- Hosts that are all this computer: a folder with a host file and a remote shell that starts the
-- helper here. A host named down-* cannot be reached, one named mute-* sends nothing, one named
-- chatty-* prints other text first.
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

local cluster = {}

local RSH = [[
#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
case $host in
down-*) echo "connect to host $host: No route to host" >&2; exit 255 ;;
mute-*) exec sleep 60 ;;
chatty-*) echo "Welcome to $host"; printf 'moonreel' ;;
esac
exec "$@"
]]

--- Make one.
---@param list string  of the host file
function cluster.new(list)
  local dir = folder.new()
  dir:write("rsh", RSH)
  dir:write("hosts", list)
  os.execute("chmod +x '" .. dir.path .. "/rsh'")
  return dir
end

--- Runs code as a script of the ranks of all hosts; returns their output and the exit code.
---@param dir table
---@param code string
---@param more string|nil  fields of launch.run, as Lua
function cluster.run(dir, code, more)
  local script = dir:write("ranks.lua", code)
  local done = process.run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh", "/usr/bin/env",
    "MOONREEL_RSH=" .. dir.path .. "/rsh", process.program(), "-e", ([[
    local good, code = xpcall(require("moonreel.cluster.launch").run,
      require("moonreel.cli.failure").handler, { %q }, { hostfile = %q, %s })
    os.exit(good and code or require("moonreel.cli.failure").report(code), true)
    ]]):format(script, dir.path .. "/hosts", more or "") }, "", { deadline_s = 600 })
  return done.output, done.exit
end

return cluster
