---@meta moonreel.core.ckpt
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Checkpoints: open, read, write; moonreel.ckpt is what people use.
---@class moonreel.core.ckpt
local ckpt = {}

--- Open a checkpoint folder, weights, or an index of weights. Reads no tensor.
---@param path string
---@return mr.Ckpt
function ckpt.open(path) end

--- The newest valid checkpoint of a run, and a line for each one that was skipped. With the lock, damaged ones are set aside.
---@param run_dir string
---@param lock? mr.RunLock
---@return mr.Ckpt
---@return string[]
function ckpt.open_newest(run_dir, lock) end

--- Steps committed in a run, newest first.
---@param run_dir string
---@return integer[]
function ckpt.steps(run_dir) end

--- Remove the checkpoints of later steps.
---@param lock mr.RunLock
---@param step integer
function ckpt.drop_after(lock, step) end

--- Write rows {name, dtype, shape, ptr, bytes} to one safetensors file; ptr is a pointer or the raw bytes.
---@param path string
---@param tensors table[]
---@param metadata? table
function ckpt.write(path, tensors, metadata) end

---@class moonreel.core.ckpt.saver.options
---@field lock? mr.RunLock The lock of the run, if the caller has it.
---@field rank? integer Number of this rank. Default: 0.
---@field ranks? integer Number of ranks that write each checkpoint; 0: one. Default: 0.
---@field fence? integer From rank 1 on: the fencing number of that lock; 0: the current one. Default: 0.
---@field keep? integer Newest checkpoints to keep; 0: 3, -1: all. Default: 0.
---@field keep_every? integer Multiples of this step are kept permanently. Default: 0.
---@field attempts? integer Tries per save; 0: 3. Default: 0.
---@field intervals_max? integer Saves in a row without a commit before check() raises; 0: 3. Default: 0.
---@field deadline_s? number Seconds of one save before it counts as stuck; 0: 600. Default: 0.
---@field buffer_bytes? integer Bytes of the host buffer of a save while save() waits; 0: copy all. Default: 0.

--- A thread that writes the checkpoints of a run: of rank 0 with the lock of the run, of other ranks with its directory.
---@param owner mr.RunLock|string
---@param options? moonreel.core.ckpt.saver.options
---@return mr.Saver
function ckpt.saver(owner, options) end

return ckpt
