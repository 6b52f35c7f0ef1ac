---@meta moonreel.core.comm
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Ranks of a run and what they tell each other.
---@class moonreel.core.comm
local comm = {}

---@class moonreel.core.comm.world.options
---@field rank? integer Of this process. Default: 0.
---@field size? integer Ranks of the run; 1 needs no wire. Default: 1.
---@field meeting? integer Descriptor of the memory that ranks of this host share; -1: MPI. Default: -1.
---@field deadline_s? number Seconds that a call may wait. Default: 600.
---@field check? boolean Compare the calls of all ranks before each collective. Default: false.

--- All ranks of a run; moonreel.comm finds out which they are.
---@param options? moonreel.core.comm.world.options
---@return mr.Comm
function comm.world(options) end

--- Start this program so many times on this host.
---@param words string[]
---@param ranks integer
---@param grace_s? number
---@return mr.Ranks
function comm.start(words, ranks, grace_s) end

--- MPI's own barrier, broadcast, all_reduce (f32) or send (and back), for benchmarks.
---@param op string
---@param x mr.Tensor
function comm.raw_mpi(op, x) end

return comm
