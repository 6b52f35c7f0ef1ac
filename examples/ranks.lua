--- Ranks that add, gather and exchange: `moonreel -n 4 examples/ranks.lua`.
--
-- Each of N processes runs this file; alone it is a world of one.
local comm = require "moonreel.comm"
local T = require "moonreel.core.tensor"

local world = comm.world()
local rank, size = world:rank(), world:size()

-- gradients of all ranks: the sum has the same bits on all ranks and in every run
local gradient = T.new("f32", { 1024 }):fill_normal(1, "rank " .. rank)
world:all_reduce(gradient)

-- the same in parts: each rank gets the rows that it owns, updates them, and everyone gets all
local weights = T.new("f32", { 4 * size, 8 }):fill_normal(1, "weights")
local own = world:reduce_scatter(weights)
weights = world:all_gather(own)

-- uneven shares: rank r gives each rank r + 1 rows
local sends, receives = {}, {}
for r = 0, size - 1 do
  sends[r + 1], receives[r + 1] = rank + 1, r + 1
end
local rows = T.new("i32", { size * (rank + 1) })
local mixed = world:all_to_all(rows, { sends = sends, receives = receives })

-- even and odd ranks by themselves
local half = world:split(rank % 2)
local ranks = half:all_gather(T.from({ 1 }, { rank }, "i32"))

-- one after the other, by the order of ranks
for r = 0, size - 1 do
  if r == rank then
    print(("rank %d of %d: gradient %.6f, %d rows, %d pieces, with rank %s"):format(rank, size,
      gradient[0], #weights, #mixed, table.concat(ranks:totable(), " ")))
    io.stdout:flush()
  end
  world:barrier()
end
