---@meta moonreel.core.bench
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Limits of this machine.
---@class moonreel.core.bench
local bench = {}

--- The fastest matrix product in f32 or bf16: {tflops, own, m, n, k, how}.
---@param dtype mr.Dtype
---@param threads integer
---@param seconds? number
---@return table
function bench.product_peak(dtype, threads, seconds) end

--- TFLOP/s of the product of [m, k] by [k, n], averaged over the time.
---@param dtype mr.Dtype
---@param threads integer
---@param m integer
---@param n integer
---@param k integer
---@param own? boolean
---@param seconds? number
---@return number
function bench.product_rate(dtype, threads, m, n, k, own, seconds) end

--- A product of a linear layer (forward, dx, dw) with m rows and weights [n, k] as a step runs it, and the packing of the weights only: {seconds, packing_s, how}.
---@param form string
---@param dtype mr.Dtype
---@param threads integer
---@param m integer
---@param n integer
---@param k integer
---@param seconds? number
---@return table
function bench.linear(form, dtype, threads, m, n, k, seconds) end

--- Bytes per second of passes over buffers of this size, averaged over the time.
---@param bytes integer
---@param threads integer
---@param seconds? number
---@return number
function bench.memory_rate(bytes, threads, seconds) end

--- Seconds that this many threads (default: one per processor, at most 8) take to write new memory of this size once.
---@param bytes integer
---@param threads? integer
---@return number
function bench.touch(bytes, threads) end

--- The memory that this process has, in bytes.
---@return integer
function bench.resident() end

--- The peak memory of this process, in bytes.
---@return integer
function bench.max_resident() end

--- Processor seconds of this process so far.
---@return number
function bench.cpu_s() end

--- Drop a file from the page cache.
---@param path string
function bench.forget_file(path) end

return bench
