--- moonreel node: the helper on a host of a run, which speaks with the launcher alone.
-- @module moonreel.cli.node
local command = {
  name = "node",
  summary = "the helper that a launcher starts on a host",
  usage = "node",
  details = "Started by `train --hostfile` and others through the remote shell; it speaks messages "
    .. "of its own at its input and output.",
}

function command.run()
  return require("moonreel.cluster.node").run(require "moonreel.cluster.answers")
end

return command
