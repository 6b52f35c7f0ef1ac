--- `moonreel golden [DIR]`: compare with files of reference numbers.
-- @module moonreel.cli.golden
local base = require "moonreel.core.base"

local command = {
  name = "golden",
  summary = "compare with files of reference numbers",
  usage = "golden [DIR] [--json]",
  most = 1,
  options = {
    {"DIR", "directory of .safetensors files; MOONREEL_GOLDEN when absent"},
    {"--json", "one JSON object instead of lines"},
  },
  details = "Prints PASS name max-error tolerance, FAIL ..., or SKIP name reason per file; exit 1 "
    .. "when one fails.",
}

function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local dir, as_json = parsed.positional[1] or os.getenv("MOONREEL_GOLDEN"), parsed.options.json
  if not dir then
    base.raise("MR_E_USAGE", "golden: expected a directory; try: moonreel golden spec/golden")
  end
  local sum = require("spec.golden.runner").run(dir:gsub("(.)/+$", "%1"), as_json and function()
  end or function(line)
    print(line)
    io.stdout:flush()
  end)
  if as_json then
    print(require("moonreel.core.json").encode(sum))
  end
  return sum.failed > 0 and 1 or 0
end

return command
