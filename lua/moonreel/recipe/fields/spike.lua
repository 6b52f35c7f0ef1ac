--- Fields that say which losses and gradients count as spikes, and what a run does about one.
local rows = {}

local function add(name, kind, default, rest)
  rest[1], rest[2], rest.default = "spike." .. name, kind, default
  rest.reader, rest.affects, rest.resume = "trainer", "run", "free"
  rows[#rows + 1] = rest
end

add("action", "text", "log", { choices = { "log", "skip", "rollback" },
  help = "action at a spike: log: report it; skip: skip the update, for which each step waits for "
    .. "its losses first; rollback: return to a checkpoint and leave out the batches from there "
    .. "on. The journal always lists the samples" })
add("norm_factor", "number", 5, { min = 1,
  help = "a gradient norm above this many times the median of the last 100 is too large" })
add("norm_steps", "integer", 3, { min = 1, unit = "steps",
  help = "this many such norms in a row are a spike; so is a single norm above norm_factor^3 "
    .. "medians" })
add("loss_sigmas", "number", 6, { min = 1,
  help = "a loss this many standard deviations above the mean of its group (resolution, length, "
    .. "quarter of the noise) is a spike; in a group with few losses, a loss 10 times above the "
    .. "limits of all others" })
add("back_steps", "integer", 100, { min = 0, unit = "steps", when = { "spike.action", "rollback" },
  help = "a rollback goes to the newest checkpoint that is at least this old" })
add("skip_batches", "integer", 300, { min = 0, unit = "steps",
  when = { "spike.action", "rollback" },
  help = "a rollback leaves out the batches of this many steps after the checkpoint, and at least "
    .. "those up to the spike" })

return rows
