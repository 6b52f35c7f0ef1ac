--- `moonreel golden [DIR]`: compare with files of reference values. The comparison is in the source
-- tree, with its specs (spec/golden/runner), and not part of the program.
-- @module moonreel.cli.golden
local base = require "moonreel.core.base"

local command = {
  name = "golden",
  summary = "compare with files of reference values",
  usage = "golden [DIR] [--json]",
  most = 1,
  options = {
    {"DIR", "directory of .safetensors files; default: MOONREEL_GOLDEN"},
    {"--json", "one JSON object instead of lines"},
  },
  details = "Runs in the root of the source tree. Prints PASS name max-error tolerance, FAIL ..., "
    .. "or SKIP name reason per file; exit 1 if one fails, or if none passes.",
}

local RUNNER = "spec/golden/runner/init.lua"

function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local dir, as_json = parsed.positional[1] or os.getenv("MOONREEL_GOLDEN"), parsed.options.json
  if not dir then
    base.raise("MR_E_USAGE", "golden: expected a directory; try: moonreel golden spec/golden")
  end
  if not base.exists(RUNNER) then
    base.raise("MR_E_USAGE", ("golden: no %s here; expected the source tree, with which the "
      .. "program was built; try: cd TREE && build/cpu/moonreel golden %s"):format(RUNNER, dir))
  end
  local sum = require("spec.golden.runner").run(dir:gsub("(.)/+$", "%1"), as_json and function()
  end or function(line)
    print(line)
    io.stdout:flush()
  end)
  if as_json then
    print(require("moonreel.core.json").encode(sum))
  end
  if sum.passed + sum.failed == 0 then
    io.stderr:write(("moonreel: golden: %s: nothing was compared (files skipped: %d); expected "
      .. "files of reference numbers, .safetensors or .json; try: spec/golden\n"):format(dir,
      sum.skipped))
  end
  return (sum.failed > 0 or sum.passed == 0) and 1 or 0
end

return command
