--- moonreel watcher: reports hanging ranks of this host, if another launcher has started them; a
-- rank starts it.
-- @module moonreel.cli.watcher
local command = {
  name = "watcher",
  summary = "internal: the watcher that a rank starts on its host under torchrun, srun or mpirun",
  usage = "watcher JOB RANK LIMITS",
  most = 3,
  details = "It reports ranks that hang, ends those that hang for too long, and ends with the "
    .. "ranks.",
}

---@param args string[]
function command.run(args)
  local words = require("moonreel.settings.words").parse(args, command).positional
  local rank = math.tointeger(tonumber(words[2]))
  local good, limits = pcall(require("moonreel.core.json").decode, words[3] or "")
  if not rank or not good or type(limits) ~= "table" then
    require("moonreel.recipe.fault").usage("watcher: expected a job, a rank and limits as JSON; "
      .. "ranks start it themselves")
  end
  require("moonreel.life.watcher").run(words[1], rank, limits, function(line)
    io.stderr:write("moonreel: ", line, "\n")
  end)
  return 0
end

return command
