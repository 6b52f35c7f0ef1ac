---@meta moonreel.core.comm
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Ranks of a run, and collectives between them.
---@class moonreel.core.comm
local comm = {}

---@class moonreel.core.comm.world.options
---@field rank? integer Of this process. Default: 0.
---@field size? integer Ranks of the run; 1 needs no transport. Default: 1.
---@field meeting? integer Descriptor of the segment that ranks of this host share; -1: none, MPI or TCP. Default: -1.
---@field host? string Where rank 0 is, for TCP; nil: no TCP.
---@field port? integer Where rank 0 listens. Default: 0.
---@field ports? integer The number of ports tried, from `port` on. Default: 1.
---@field listener? integer Descriptor of a socket that listens there, of rank 0. Default: -1.
---@field listen? string Interface or address at which this rank listens; nil: rank 0 at all.
---@field run? string The run; the same on all ranks.
---@field fence? integer The launch of the run, from 0. Default: 0.
---@field secret? string What only ranks of the run know.
---@field secret_fd? integer Descriptor of a file with it, in its place. Default: -1.
---@field encrypt? boolean Messages between ranks are encrypted; needs a secret. Default: false.
---@field first? integer Of the ranks of this host. Default: 0.
---@field near? integer Ranks that `meeting` is for, with TCP. Default: 0.
---@field lost_after_s? number Seconds without an answer after which a host is lost, with TCP. Default: 10.
---@field deadline_s? number Seconds that a call may wait. Default: 600.
---@field check? boolean Compare the calls of all ranks before each collective. Default: false.

--- The group of all ranks of a run; moonreel.comm finds the options.
---@param options? moonreel.core.comm.world.options
---@return mr.Comm
function comm.world(options) end

--- MPI's own barrier, broadcast, all_reduce (f32) or send (and back), for benchmarks.
---@param op string
---@param x mr.Tensor
function comm.raw_mpi(op, x) end

return comm
