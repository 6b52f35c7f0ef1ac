--- moonreel ckpt: list, inspect, compare, verify, convert and prune checkpoints; find the first one
-- that fails a test. A part is a row of options and the file of its name in ckpt/, a function of
-- the options and its words. An option with `of` is of that part alone; a part with `command` takes
-- any number of words behind its own.
-- @module moonreel.cli.ckpt
local base = require "moonreel.core.base"

local command = {
  name = "ckpt",
  summary = "list, inspect, compare, verify, convert, prune and bisect checkpoints",
  usage = "ckpt ls [RUN|DIR] | inspect CKPT|RUN [NAME] | diff A B | verify CKPT|RUN | convert CKPT "
    .. "OUT.safetensors | prune RUN --keep N | bisect RUN -- COMMAND",
  options = {
    { "ls [RUN|DIR]", "checkpoints of a run, or of every run in a directory (default: outputs)" },
    { "inspect CKPT|RUN [NAME]", "what is in it; NAME: one tensor with its numbers, or a pattern "
      .. "with *" },
    { "diff A B", "parameters, moments, EMA, sampler state, bit for bit; exit 1 when they differ" },
    { "verify CKPT|RUN", "read everything; compare all hashes where there are any" },
    { "--part I/N", "verify: the share I, from 1 on, of N readers; each reads as much as the "
      .. "others", of = "verify" },
    { "convert CKPT OUT.safetensors", "weights alone under their released names; also from .pth "
      .. "and .bin" },
    { "prune RUN --keep N", "remove all but the newest N checkpoints" },
    { "bisect RUN -- COMMAND", "the first checkpoint for which a command fails, and what happened "
      .. "before it", command = true },
    { "--ema", "convert: the averaged weights", of = "convert" },
    { "--keep N", "prune: how many stay", least = 1, of = "prune" },
    { "--every STEPS", "prune: multiples stay too", least = 1, of = "prune" },
    { "--dry-run", "prune: only say what would go", of = "prune" },
    { "--again", "bisect: run the command also where an interrupted bisect did", of = "bisect" },
    { "--outputs DIR", "where runs named by folder or number are looked up (default: outputs)" },
    { "--json", "print JSON" },
  },
  details = "A checkpoint is a directory step-N, a run (its newest one), RUN@STEP, or a "
    .. "safetensors file.\nbisect: a word {} of COMMAND, also behind `name=`, becomes the path of "
    .. "a checkpoint; MOONREEL_CKPT is the same.\nIt exits 0: good; 1 to 127: bad; 125: cannot be "
    .. "judged. The oldest and the newest checkpoint come first. Exit 0:\nfound; 1: all are good, "
    .. "the first is bad, or none could be judged.",
}

local function usage(form, ...)
  base.raise("MR_E_USAGE", ("ckpt: %s; usage: moonreel %s"):format(form:format(...), command.usage))
end

-- what the row of a part says of its words: their names, how many at least and at most
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

-- refuses options of other parts
local function check_options(part, options)
  for _, row in ipairs(command.options) do
    local name = row.of and row.of ~= part and row[1]:match("^%-%-([%l-]+)")
    if name and options[name:gsub("-", "_")] ~= nil then
      usage("%s: --%s is of %s", part, name, row.of)
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
    usage("'%s' is no part of 'ckpt'", part)
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
