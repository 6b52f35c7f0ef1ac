--- How weights are watched while a run trains, and what raises an alarm.
local rows = {}

local function add(name, kind, default, rest)
  rest[1], rest[2], rest.default = "weights." .. name, kind, default
  rest.reader, rest.affects, rest.resume = "trainer", "nothing", "free"
  rows[#rows + 1] = rest
end

add("every", "integer", 100, { min = 0, unit = "steps",
  help = "weights are measured behind so many steps, and behind the last one of an epoch: of each "
    .. "block its norm, how far the update moved it, the share of dead units, how far the average "
    .. "is off; 0: never" })
add("histograms", "integer", 0, { min = 0, unit = "steps",
  help = "histograms of weights and gradients of each block behind so many steps, for TensorBoard "
    .. "and W&B; 0: none. The journal has some 1.5 kB for each block, TensorBoard and "
    .. "W&B have some 5" })
add("norm_factor", "number", 2, { min = 1,
  help = "alarm: the norm of a block is more than so many times what it was when it was measured "
    .. "before" })
add("update_most", "number", 0.1, { min = 0,
  help = "alarm: the norm of an update is a larger share of that of the block" })
add("update_least", "number", 0, { min = 0,
  help = "alarm: it is a smaller share; 0: none is. Schedules that end at lr 0 get below any "
    .. "other" })
add("dead_most", "number", 0.5, { min = 0, max = 1,
  help = "alarm: a larger share of the units of a block is dead: no element of a row of a weight "
    .. "has a second moment whose root is above optim.eps" })
add("ema_most", "number", 1, { min = 0,
  help = "alarm: the averaged weights of a block are further off than so many times its norm" })

return rows
