--- How ranks of a run are watched, and what happens when one fails.
local rows = {}

local function add(path, kind, default, rest)
  rest[1], rest[2], rest.default = path, kind, default
  rest.reader, rest.affects, rest.resume, rest.min = "trainer", "nothing", "free", rest.min or 0
  rows[#rows + 1] = rest
end

local limits = {
  { "start", 9, "reading the recipe" },
  { "open", 9, "taking the run directory, opening what the run starts from" },
  { "device", 60, "opening the device" },
  { "index", 9, "opening the data" },
  { "weights", 9, "loading weights" },
  { "compile", 9, "compiling before the first step" },
  { "load", 9, "waiting for a batch" },
  { "forward", 9, "forward and backward" },
  { "reduce", 9, "what ranks tell each other, without waiting for others" },
  { "optimizer", 9, "the update" },
  { "snapshot", 60, "copying what a checkpoint holds" },
  { "persist", 900, "waiting for a checkpoint that is written" },
}
local of_start = { start = true, open = true, device = true, index = true, weights = true,
  compile = true }
for _, limit in ipairs(limits) do
  add("watch." .. limit[1], "number", limit[2], { unit = "s", min = 0.05,
    help = ("of several ranks, one is named when it stands still for longer in: %s%s"):format(
      limit[3], of_start[limit[1]] and ", and neither computes nor reads"
        or limit[2] == 9 and "; or for 3 times what 99 of 100 take" or "") })
end
add("watch.patience", "number", 3, { min = 1,
  help = "a rank that stands still for this many times its limit is ended with the launch" })
add("hosts.every", "number", 60, { unit = "s",
  help = "each host of a run says so often how it is, for the journal and trackers: power, clocks, "
    .. "memory and errors of its GPUs, what its links carry and lose, load, free memory; 0: never. "
    .. "A process of its own asks, which begins when the run is so old" })
add("restarts", "integer", 5, {
  help = "of several ranks: how often a run goes on from its newest checkpoint after a rank was "
    .. "lost, without restart_steps new steps in between" })
add("restart_steps", "integer", 200, { unit = "steps",
  help = "after this many new steps restarts count from 0 again" })
add("restart_pause", "number", 1, { unit = "s",
  help = "pause before the first restart; each further one takes twice as long" })

return rows
