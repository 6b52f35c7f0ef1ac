--- moonreel clock: how far the clocks of hosts differ from this one's.
-- @module moonreel.cli.clock
local survey = require "moonreel.cluster.survey"

local command = {
  name = "clock",
  summary = "show how far the clocks of hosts differ from this one's, and whether they jump",
  usage = "clock [--hostfile FILE] [--json]",
  most = 0,
  options = survey.options,
  details = "The offset is right within its bound. Verdicts: ok; apart (more than 50 ms); steps "
    .. "(it moved\nrelative to a monotonic clock); no service (no known service adjusts it). Exit "
    .. "1 if clocks\nare apart or step, 6 if a host does not answer.",
}

local function lines(row)
  local a, text = row.answer, require("moonreel.cluster.clock").text
  return { { offset = text(a.offset_s, true), bound = text(a.bound_s), step = text(a.step_s, true),
    service = a.service, verdict = a.verdict } }
end

---@param args string[]
function command.run(args)
  local opts = require("moonreel.settings.words").parse(args, command).options
  local hosts <close> = survey.open(opts)
  local rows, wrong = require("moonreel.cluster.clock").measure(hosts), false
  for _, row in ipairs(rows) do
    wrong = wrong or row.answer and (row.answer.verdict == "apart" or row.answer.verdict == "steps")
  end
  local code = survey.print(rows, { { key = "offset", right = true },
    { key = "bound", right = true }, { key = "step", right = true }, { key = "service" },
    { key = "verdict" } }, lines, opts)
  return code ~= 0 and code or wrong and 1 or 0
end

return command
