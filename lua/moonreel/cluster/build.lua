--- The build of moonreel on a host: the program and its plug-ins, identified by content.
-- @module moonreel.cluster.build
local base = require "moonreel.core.base"
local process = require "moonreel.core.process"

local build = {}

local PLUGINS <const> = { "cuda", "media", "mpi", "stack" }
local SHOWN <const> = 8 -- digits of a hash of a hash as shown

local own

--- The build of this host: `program`, and `plugins` as "media=HASH mpi=HASH".
---@return table
function build.here()
  if not own then
    local list = {}
    for _, name in ipairs(PLUGINS) do
      local path = process.plugin(name)
      list[#list + 1] = path and ("%s=%s"):format(name, base.hash128(base.read_file(path)))
    end
    own = { program = process.build_id(), plugins = table.concat(list, " ") }
  end
  return own
end

local function plugins_of(text)
  local by = {}
  for name, hash in text:gmatch "(%w+)=(%x+)" do
    by[name] = hash
  end
  return by
end

--- Describes a host whose build differs from this one; nil: the builds are the same. A plug-in that
-- exists on only one of the two is not a difference: hosts without GPUs do not need all plug-ins.
---@param there table      version, program, plugins, as its helper says
---@param here table|nil   (default: this host's)
---@return string|nil
function build.other(there, here)
  here = here or build.here()
  local what, one, two
  if there.program ~= here.program then
    what, one, two = "moonreel", there.program, here.program
  end
  local own_plugins = plugins_of(here.plugins)
  for name, hash in pairs(plugins_of(there.plugins or "")) do
    if not what and own_plugins[name] and own_plugins[name] ~= hash then
      what, one, two = ("moonreel's %s plug-in"):format(name), hash, own_plugins[name]
    end
  end
  return what and ("another build of %s (%s, %s) than here (%s); try: the same program on all "
    .. "hosts"):format(what, there.version, one:sub(1, SHOWN), two:sub(1, SHOWN))
end

return build
