--- moonreel ckpt: list, inspect, compare, verify, convert and prune checkpoints; find the first one
-- that fails a test. Each part has a row of options here and a file of its name in ckpt/: a
-- function of the options and the part's words. An option with `of` belongs to that part alone. A
-- part with `command` takes any number of words after its own.
-- @module moonreel.cli.ckpt
local base = require "moonreel.core.base"

local command = {
  name = "ckpt",
  summary = "list, inspect, compare, verify, convert, prune and bisect checkpoints",
  usage = "ckpt ls [RUN|DIR] | inspect CKPT|RUN [NAME] | diff A B | verify CKPT|RUN | convert CKPT "
    .. "OUT.safetensors | prune RUN --keep N | bisect RUN -- COMMAND",
  options = {
    { "ls [RUN|DIR]", "checkpoints of a run, or of every run in a directory (default: outputs)" },
    { "inspect CKPT|RUN [NAME]", "its contents; NAME: one tensor with its statistics, or a pattern "
      .. "with *" },
    { "diff A B", "compare parameters, moments, EMA and sampler state bit for bit; exit 1 if they "
      .. "differ" },
    { "verify CKPT|RUN", "read everything and compare all hashes, if there are any" },
    { "--part I/N", "verify: share I of N, counted from 1; all shares have the same "
      .. "size", of = "verify" },
    { "convert CKPT OUT.safetensors", "write only weights, under their released names; also from "
      .. ".pth and .bin" },
    { "prune RUN --keep N", "remove all but the newest N checkpoints" },
    { "bisect RUN -- COMMAND", "find the first checkpoint for which a command fails, and the "
      .. "events before it", command = true },
    { "--ema", "convert: the averaged weights", of = "convert" },
    { "--keep N", "prune: number of checkpoints to keep", least = 1, of = "prune" },
    { "--every STEPS", "prune: also keep multiples of STEPS", least = 1, of = "prune" },
    { "--dry-run", "prune: only print what would be removed", of = "prune" },
    { "--again", "bisect: run the command again for checkpoints that an interrupted bisect has "
      .. "judged", of = "bisect" },
    { "--outputs DIR", "folder in which to look up runs by folder name or number (default: "
      .. "outputs)" },
    { "--json", "print JSON" },
  },
  details = "A checkpoint is a directory step-N, a run (its newest one), RUN@STEP, or a "
    .. "safetensors file.\nbisect: the word {} of COMMAND, also after `name=`, is replaced by the "
    .. "path of a checkpoint; MOONREEL_CKPT has it too.\nCOMMAND exits with 0 for a good "
    .. "checkpoint, 1 to 127 for a bad one, 125 if it cannot be judged. The oldest and the\nnewest "
    .. "checkpoint come first. Exit 0: found; 1: all are good, the first is bad, or none could be "
    .. "judged.",
}

local function usage(form, ...)
  base.raise("MR_E_USAGE", ("ckpt: %s; usage: moonreel %s"):format(form:format(...), command.usage))
end

-- the names of a part's words, and the least and the largest number of them
local function words_of(part)
  for _, row in ipairs(command.options) do
    local words = row[1]:match("^(%l+ .*)$")
    if words and words:match("^%l+") == part then
      words = words:gsub("^%l+ ", "")
      if row.command then
        return words, 2, math.huge
      end
      words = words:gsub(" %-%-.*$", "")
      local most = select(2, words:gsub("%S+", ""))
      return words, most - select(2, words:gsub("%[", "")), most
    end
  end
end

--- The page of a part, which is that of the command.
---@param name string|nil
---@return table|nil  nil: there is no such part
function command.part(name) return name and words_of(name) and command end

-- refuses options of other parts
local function check_options(part, options)
  for _, row in ipairs(command.options) do
    local name = row.of and row.of ~= part and row[1]:match("^%-%-([%l-]+)")
    if name and options[name:gsub("-", "_")] ~= nil then
      usage("%s: --%s is an option of %s", part, name, row.of)
    end
  end
end

---@param args string[]
---@return integer exit code
function command.run(args)
  local parsed = require("moonreel.settings.words").parse(args, command)
  local part = table.remove(parsed.positional, 1)
  if not part then
    usage("nothing to do")
  end
  local words, least, most = words_of(part)
  if not words then
    usage("'%s' is not a subcommand of 'ckpt'", part)
  end
  local n = #parsed.positional
  if n < least or n > most then
    usage("%s: expected %s, got %s", part, words, n == 0 and "nothing"
      or "'" .. table.concat(parsed.positional, " ") .. "'")
  end
  check_options(part, parsed.options)
  parsed.options.outputs = parsed.options.outputs or "outputs"
  return require("moonreel.cli.ckpt." .. part)(parsed.options, table.unpack(parsed.positional))
end

return command
