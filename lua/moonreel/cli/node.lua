--- moonreel node: the helper on a host of a run; it communicates only with the launcher.
-- @module moonreel.cli.node
local command = {
  name = "node",
  summary = "internal: the helper that a launcher starts on a host",
  usage = "node",
  most = 0,
  details = "`train --hostfile` and other commands start it through the remote shell; it exchanges "
    .. "messages over its input and output.",
}

function command.run(args)
  require("moonreel.settings.words").parse(args, command)
  local answers = require "moonreel.cluster.answers"
  return require("moonreel.cluster.node").run(setmetatable({
    doctor = function(order) return require("moonreel.cli.doctor").rows(order.outputs) end,
  }, { __index = answers }))
end

return command
