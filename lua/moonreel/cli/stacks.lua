--- moonreel stacks: where the ranks of a run are.
-- @module moonreel.cli.stacks
local command = {
  name = "stacks",
  summary = "show where each rank of a run is: phase, step, calls, Lua and native frames",
  usage = "stacks RUN [--json]",
  options = { { "--json", "print JSON" } },
  details = "Ranks at the same place stand together, odd ones first. Blocked and stopped ranks are "
    .. "seen too; each thread is\nheld for an instant. Lua frames are those of the phase's "
    .. "beginning.",
}

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local dir = require("moonreel.cli.target").run(parsed, command)
  local stacks = require "moonreel.life.stacks"
  local launches = require("moonreel.life").of_run(dir)
  local groups = stacks.groups(launches)
  for _, launch in ipairs(launches) do
    launch.page:close()
  end
  if parsed.options.json then
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
    io.write(json.encode(out, { indent = 2 }), "\n")
    return 0
  end
  for i, group in ipairs(groups) do
    io.write(i > 1 and "\n" or "", stacks.text(group))
  end
  if #groups == 0 then
    io.write("no ranks of this run are on this host\n")
  end
  return 0
end

return command
