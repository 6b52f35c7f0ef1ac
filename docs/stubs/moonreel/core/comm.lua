---@meta moonreel.core.comm
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Ranks of a run, and collectives between them.
---@class moonreel.core.comm
local comm = {}

---@class moonreel.core.comm.world.options
---@field rank? integer Rank of this process. Default: 0.
---@field size? integer Ranks of the run; 1 needs no transport. Default: 1.
---@field segment? integer Descriptor of the segment that ranks of this host share; -1: none, MPI or TCP. Default: -1.
---@field host? string Host of rank 0, for TCP; nil: no TCP.
---@field port? integer Port at which rank 0 listens. Default: 0.
---@field ports? integer The number of ports tried, from `port` on. Default: 1.
---@field listener? integer For rank 0: descriptor of a socket that listens there. Default: -1.
---@field listen? string Interface or address at which this rank listens; nil: rank 0 listens at all.
---@field run? string Id of the run; equal on all ranks.
---@field fence? integer Number of the launch of the run, from 0. Default: 0.
---@field secret? string Secret that only ranks of the run know.
---@field secret_fd? integer Descriptor of a file with the secret, instead of `secret`. Default: -1.
---@field encrypt? boolean Messages between ranks are encrypted; needs a secret. Default: false.
---@field first? integer First rank of this host. Default: 0.
---@field n_local? integer Number of ranks that share `segment`, with TCP. Default: 0.
---@field lost_after_s? number Seconds without an answer after which a host is lost, with TCP. Default: 10.
---@field deadline_s? number Most seconds that a call waits. Default: 600.
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
