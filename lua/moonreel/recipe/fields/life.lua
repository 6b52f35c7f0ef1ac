--- Fields that say how ranks of a run are watched, and what happens when one fails.
local rows = {}

local function add(path, kind, default, rest)
  rest[1], rest[2], rest.default = path, kind, default
  rest.reader, rest.affects, rest.resume, rest.min = "trainer", "nothing", "free", rest.min or 0
  rows[#rows + 1] = rest
end

local limits = {
  { "start", 9, "reading the recipe" },
  { "open", 9, "taking the run directory, opening the checkpoint or weights to start from" },
  { "device", 60, "opening the device" },
  { "index", 9, "opening the data" },
  { "weights", 9, "loading weights" },
  { "compile", 9, "compiling before the first step" },
  { "load", 9, "waiting for a batch" },
  { "forward", 9, "forward and backward" },
  { "reduce", 9, "communication between ranks, without waits for other ranks" },
  { "optimizer", 9, "the update" },
  { "snapshot", 60, "copying the state for a checkpoint" },
  { "persist", 900, "waiting until a checkpoint is written" },
}
local of_start = { start = true, open = true, device = true, index = true, weights = true,
  compile = true }
for _, limit in ipairs(limits) do
  add("watch." .. limit[1], "number", limit[2], { unit = "s", min = 0.05,
    help = ("with several ranks, a rank is reported if it makes no progress for longer in: %s%s")
      :format(limit[3], of_start[limit[1]] and ", and neither computes nor reads"
        or limit[2] == 9 and "; or for 3 times the 99th percentile" or "") })
end
add("watch.patience", "number", 3, { min = 1,
  help = "a rank that hangs for this multiple of its time limit is ended, and the launch with it" })
add("hosts.every", "number", 60, { unit = "s",
  help = "seconds between reports of each host for the journal and trackers: power, clocks, memory "
    .. "and errors of its GPUs, traffic and losses of its links, load, free memory; 0: never. A "
    .. "separate process queries the host; it starts after this time" })
add("restarts", "integer", 5, {
  help = "with several ranks: how often a run restarts from its newest checkpoint after a rank was "
    .. "lost, without restart_steps new steps in between" })
add("restart_steps", "integer", 200, { unit = "steps",
  help = "after this many new steps the count of restarts begins at 0 again" })
add("restart_pause", "number", 1, { unit = "s",
  help = "pause before the first restart; each further pause is twice as long" })

return rows
