---@meta moonreel.core.life
-- Made from the rows of the bindings: moonreel help stubs DIR

--- What ranks tell of themselves while they run.
---@class moonreel.core.life
local life = {}

--- Tell of this process on a page of its own, unless its launcher has given it one; of another launcher: to which job it belongs.
---@param rank? integer
---@param ranks? integer
---@param job? string
function life.publish(rank, ranks, job) end

--- Which run this process works for.
---@param id string
---@param dir string
---@param fence integer
function life.set_run(id, dir, fence) end

--- A phase begins: start, meet, open, device, index, weights, compile, load, forward, reduce, optimizer, snapshot or persist; the one that ends.
---@param name string
---@return string
function life.phase(name) end

--- A step begins.
---@param step integer
function life.step(step) end

--- The clip that a batch waits for.
---@param name? string
function life.clip(name) end

--- The folder of pages of this host and user.
---@return string?
function life.registry() end

--- A page of the registry.
---@param path string
---@return mr.Life
function life.open(path) end

--- Send a signal to a process that still is the one it was; else false and why.
---@param pid integer
---@param start integer
---@param uid integer
---@param number integer
---@return boolean
---@return string?
function life.signal(pid, start, uid, number) end

--- R, S or D: it lives; T: it is stopped; nil: it is gone.
---@param pid integer
---@param start integer
---@return string?
function life.state(pid, start) end

--- What a launch has started, children of ranks too: {pid, start, state}.
---@param token string
---@param uid integer
---@return table[]
function life.processes(token, uid) end

--- What a process and all that it has started have done so far: seconds of processors, bytes read and written.
---@param pid integer
---@return number?
---@return number?
function life.work(pid) end

--- Threads of a process, also of a blocked or stopped one: {tid, name, state, waits, frames}; and why there are no frames.
---@param pid integer
---@return table[]
---@return string?
function life.threads(pid) end

return life
