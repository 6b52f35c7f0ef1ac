--- `moonreel plan --published`: what the cost models say of runs that were published.
-- @module moonreel.cli.plan
local printer = require "moonreel.text.table"

local command = {
  name = "plan",
  summary = "say what published runs take by the cost models, beside what they took",
  usage = "plan --published [--json]",
  options = {
    { "--published", "published runs: their numbers beside ours, with the margin and the source" },
    { "--json", "the rows as JSON" },
  },
  details = "Exit 5 when a number lies outside its margin.",
}

local function number(value)
  return ("%.4g"):format(value)
end

local columns = {
  { key = "run" }, { key = "what" },
  { key = "published", right = true, format = number },
  { key = "planned", right = true, format = number },
  { key = "low", title = "from", right = true, format = number },
  { key = "high", title = "to", right = true, format = number },
  { key = "ok", title = "within", format = function(ok) return ok and "yes" or "NO" end },
}

function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  if not parsed.options.published or #parsed.positional > 0 then
    require("moonreel.recipe.fault").usage("plan: expected --published; try: moonreel plan --help")
  end
  local rows = require("moonreel.plan.published").rows()
  printer.print(columns, rows, parsed.options)
  local outside, sources = 0, {}
  for _, row in ipairs(rows) do
    outside = outside + (row.ok and 0 or 1)
    if not sources[row.source] then
      sources[row.source], sources[#sources + 1] = true, row.source
    end
  end
  if not parsed.options.json then
    for _, row in ipairs(rows) do
      if row.note then
        print(("%s, %s: %s"):format(row.run, row.what, row.note))
      end
    end
    print("sources: " .. table.concat(sources, "; "))
  end
  return outside > 0 and 5 or 0
end

return command
