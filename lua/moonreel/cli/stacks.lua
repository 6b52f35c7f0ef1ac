--- moonreel stacks: where the ranks of a run are, on all of its hosts.
-- @module moonreel.cli.stacks
local survey = require "moonreel.cluster.survey"

local command = {
  name = "stacks",
  summary = "show where each rank of a run is: phase, step, calls, Lua and native frames",
  usage = "stacks [RUN | LAUNCH] [--hostfile FILE] [--json]",
  options = survey.options,
  details = "Without a run: list the launches on this host. LAUNCH is a number of that list, for a "
    .. "launch without a run\ndirectory. Covers the hosts of the run, or those of --hostfile. "
    .. "Ranks at the same place are grouped, unusual\nones first. Blocked and stopped ranks are "
    .. "shown too; each thread is stopped for an instant. Lua frames are those\nof the beginning "
    .. "of the phase. Exit 6 if a host did not answer.",
}

-- groups for JSON, with empty lists as lists
local function plain(groups)
  local json = require "moonreel.core.json"
  local out = json.array()
  for i, group in ipairs(groups) do
    group.one.ranks, group.one.rank = json.array(group.ranks), nil
    group.one.lua, group.one.threads = json.array(group.one.lua), json.array(group.one.threads)
    for _, thread in ipairs(group.one.threads) do
      thread.frames = json.array(thread.frames)
    end
    out[i] = group.one
  end
  return out
end

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local opts, target = parsed.options, require "moonreel.cli.target"
  if #parsed.positional == 0 then
    return target.list(opts)
  end
  local run, stacks = target.run(parsed, command), require "moonreel.life.stacks"
  local asked <close> = survey.open(target.hosts(opts, run))
  local rows, list = asked:ask("stacks", { launch = run.launch,
    dir = run.dir and require("moonreel.core.process").real_path(run.dir) }), {}
  for _, row in ipairs(rows) do
    local groups = row.answer and row.answer.groups or {}
    table.move(groups, 1, #groups, #list + 1, list)
  end
  local groups = stacks.fold(list)
  if opts.json then
    io.write(require("moonreel.core.json").encode(plain(groups), { indent = 2 }), "\n")
  end
  for i, group in ipairs(opts.json and {} or groups) do
    io.write(i > 1 and "\n" or "", stacks.text(group))
  end
  if #groups == 0 and not opts.json then
    io.write(asked.cluster and "no ranks of this run are on its hosts\n"
      or "no ranks of this run are on this host\n")
  end
  return survey.tell_missing(rows, opts)
end

return command
