--- moonreel stop: end a run on all of its hosts.
-- @module moonreel.cli.stop
local survey = require "moonreel.cluster.survey"

local command = {
  name = "stop",
  summary = "end a run: let it save, or else terminate or kill it",
  usage = "stop [RUN | LAUNCH] [--wait S] [--hostfile FILE] [--json]",
  options = { { "--wait S", "seconds to wait until it has saved and ended (default: 30)",
    least = 0 }, table.unpack(survey.options) },
  details = "Without a run: list the launches on this host. LAUNCH is a number of that list, for a "
    .. "launch without a run\ndirectory. Covers the hosts of the run, or those of --hostfile. "
    .. "Processes are identified by the page of their\nlaunch: number, start time, owner, and a "
    .. "token in their environment; never by a command line. Stopped processes\nand those without "
    .. "their parents are found too. Exit 1 if a process is left, 6 if a host did not answer.",
}

local END_S <const> = 5

local COLUMNS <const> = { { key = "host" }, { key = "ranks", right = true },
  { key = "saved", right = true }, { key = "terminated", right = true },
  { key = "killed", right = true }, { key = "left", right = true },
  { key = "free_bytes", title = "free", right = true,
    format = function(n) return require("moonreel.trainer.progress").bytes(n) end },
  { key = "time_s", title = "time", right = true,
    format = function(s) return ("%.1f s"):format(s) end } }

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local opts, target = parsed.options, require "moonreel.cli.target"
  if #parsed.positional == 0 then
    return target.list(opts)
  end
  local run = target.run(parsed, command)
  local asked <close> = survey.open(target.hosts(opts, run))
  local save_s = opts.wait or 30
  local rows = asked:ask("stop", { dir = run.dir
    and require("moonreel.core.process").real_path(run.dir), launch = run.launch,
    save_s = save_s, end_s = END_S }, save_s + 2 * END_S)
  local list, left = {}, 0
  for _, row in ipairs(rows) do
    if row.answer then
      row.answer.host = row.host
      left = left + row.answer.left
    end
    list[#list + 1] = row.answer or opts.json and row or nil
  end
  local columns = table.move(COLUMNS, 1, #COLUMNS, 1, {})
  columns[#columns + 1] = opts.json and { key = "reason" } or nil
  require("moonreel.text.table").print(columns, list, opts)
  local code = survey.tell_missing(rows, opts)
  return code > 0 and code or left > 0 and 1 or 0
end

return command
