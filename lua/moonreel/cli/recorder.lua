--- moonreel recorder: the process that reports the state of a host of a run; a rank starts it.
-- @module moonreel.cli.recorder
local command = {
  name = "recorder",
  summary = "internal: the process that a rank starts on its host for hosts.every",
  usage = "recorder DIR FENCE SECONDS PID START",
  most = 5,
  details = "It writes power, clocks, links and errors of its host into the run's folder, and ends "
    .. "with the rank.",
}

---@param args string[]
function command.run(args)
  local words = require("moonreel.settings.words").parse(args, command).positional
  local fence, pid, start = math.tointeger(tonumber(words[2])), math.tointeger(tonumber(words[4])),
    math.tointeger(tonumber(words[5]))
  local every = tonumber(words[3])
  if not (fence and pid and start and every and every > 0) then
    require("moonreel.recipe.fault").usage("recorder: expected a run, its fence, seconds, and a "
      .. "process with its start; ranks start it themselves")
  end
  -- a reader of the run's output must not wait for this process
  local process = require "moonreel.core.process"
  process.drop(io.stdout)
  process.drop(io.stderr)
  require("moonreel.cluster.recorder").run(words[1], fence, every, pid, start)
  return 0
end

return command
