--- Two hosts, a and b, as network namespaces of this computer, each with its own name and shared
-- memory, and a remote shell that enters them. They are 10.77.0.1 and 10.77.0.2, joined by one
-- link, va in a and vb in b. No privileges are needed where users may make namespaces.
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

local namespaces = {}

local RSH = [[
#!/bin/sh
shift
host=$1
shift
exec nsenter --net=/run/netns/$host unshare --uts --ipc sh -c 'hostname $0 && exec "$@"' $host "$@"
]]

local MAKE = [[
set -e
mount -t tmpfs none /run
mkdir /run/netns
# not `ip -n`, which wants to mount /sys
at() { host=$1; shift; nsenter --net=/run/netns/$host ip "$@"; }
for host in a b; do
  ip netns add $host
  at $host link set lo up
done
ip link add va netns a type veth peer name vb netns b
at a addr add 10.77.0.1/24 dev va
at b addr add 10.77.0.2/24 dev vb
at a link set va up
at b link set vb up
exec "$@" 2>&1
]]

--- Runs words with a and b as hosts; returns nil and why when the system does not allow it.
---@param words string[]
---@param rsh string|nil  path of the remote shell
---@return table|nil done  as of process.run
---@return string|nil why
function namespaces.run(words, rsh)
  local probe = process.run({ "/bin/sh", "-c",
    "unshare -Urnm ip link add va type veth peer name vb 2>&1 && command -v tc" }, "")
  if probe.exit ~= 0 then
    return nil, "no namespaces here: " .. probe.output
  end
  return process.run({ "/usr/bin/unshare", "-Urnm", "/bin/sh", "-c", MAKE, "sh", "/usr/bin/env",
    "MOONREEL_RSH=" .. (rsh or ""), table.unpack(words) }, "", { deadline_s = 600 })
end

--- A folder with the remote shell and a host file of two ranks each.
function namespaces.folder()
  local dir = folder.new()
  dir:write("rsh", RSH)
  dir:write("hosts", "a slots=2 addr=10.77.0.1\nb slots=2 addr=10.77.0.2\n")
  os.execute("chmod +x '" .. dir.path .. "/rsh'")
  return dir
end

return namespaces
