--- Fields that say when a run measures its weights, and which values raise an alarm.
local rows = {}

local function add(name, kind, default, rest)
  rest[1], rest[2], rest.default = "weights." .. name, kind, default
  rest.reader, rest.affects, rest.resume = "trainer", "nothing", "free"
  rest.when = name ~= "every" and name ~= "histograms" and { "weights.every", set = true } or nil
  rows[#rows + 1] = rest
end

add("every", "integer", 100, { min = 0, unit = "steps",
  help = "steps between measurements of the weights; the last step of an epoch is measured too. "
    .. "Measured of each block: its norm, the size of the update, the share of dead units, the "
    .. "distance of the average from the weights. 0: never" })
add("histograms", "integer", 0, { min = 0, unit = "steps",
  help = "steps between histograms of each block's weights and gradients, for TensorBoard and "
    .. "W&B; 0: no histograms. A block takes about 1.5 kB in the journal, about 5 kB in "
    .. "TensorBoard and in W&B" })
add("norm_factor", "number", 2, { min = 1,
  help = "alarm: the norm of a block divided by its norm at the last measurement is above this" })
add("update_most", "number", 0.1, { min = 0,
  help = "alarm: the norm of an update divided by the norm of the block is above this" })
add("update_least", "number", 0, { min = 0,
  help = "alarm: the norm of an update divided by the norm of the block is below this; 0: no "
    .. "alarm. A schedule that ends at lr 0 gets below any limit above 0" })
add("dead_most", "number", 0.5, { min = 0, max = 1,
  help = "alarm: the share of dead units of a block is above this. A unit is a row of a weight; "
    .. "it is dead when no element has a second moment whose root is above optim.eps" })
add("ema_most", "number", 1, { min = 0,
  help = "alarm: the distance between the averaged weights of a block and its weights, divided by "
    .. "the block's norm, is above this" })

return rows
