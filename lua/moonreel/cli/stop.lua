--- moonreel stop: end a run on this host.
-- @module moonreel.cli.stop
local command = {
  name = "stop",
  summary = "end a run: it saves, or is terminated, or killed",
  usage = "stop RUN [--wait S] [--json]",
  options = {
    { "--wait S", "seconds that it may take to save and end by itself (default: 30)", least = 0 },
    { "--json", "print JSON" },
  },
  details = "Processes are known by the page of their launch: number, start time, owner, and a "
    .. "token in their environment;\nnever by a command line. What is stopped or has left its "
    .. "parents is found too. Exit 1 when something is left.",
}

local END_S <const> = 5

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local opts = parsed.options
  local dir = require("moonreel.cli.target").run(parsed, command)
  local ckpt = require "moonreel.ckpt"
  local function newest(path) return path and ckpt.steps(path)[1] end
  local row = require("moonreel.life.stop").run(dir,
    { save_s = opts.wait or 30, end_s = END_S }, newest)
  require("moonreel.text.table").print({ { key = "host" }, { key = "ranks", right = true },
    { key = "saved", right = true }, { key = "terminated", right = true },
    { key = "killed", right = true }, { key = "left", right = true },
    { key = "free_bytes", title = "free", right = true,
      format = require("moonreel.trainer.progress").bytes },
    { key = "time_s", title = "time", right = true,
      format = function(s) return ("%.1f s"):format(s) end } }, { row }, opts)
  return row.left == 0 and 0 or 1
end

return command
