---@meta moonreel.core.process
-- Made from the rows of the bindings: moonreel help stubs DIR

--- This process, and children with a deadline.
---@class moonreel.core.process
local process = {}

--- The absolute path without links; nil if nothing is at the path.
---@param path string
---@return string?
function process.real_path(path) end

--- Path of the running program.
---@return string
function process.program() end

--- 32 digits that differ from build to build of the program.
---@return string
function process.build_id() end

---@class moonreel.core.process.limit.options
---@field memory_bytes? integer Address space; past it allocations fail. Default: 0.
---@field cpu_s? number Processor time; past it the process is killed. Default: 0.

--- Lower this process's memory and processor time for good.
---@param options moonreel.core.process.limit.options
function process.limit(options) end

--- The path of a plug-in; nil and where it was looked for.
---@param name string
---@return string?
---@return string?
function process.plugin(name) end

--- What the system lets this process have: {files, locked_bytes}; absent: no limit.
---@return table
function process.allowed() end

--- A variable that the environment gives; nil for one that this program has set itself.
---@param name string
---@return string?
function process.variable(name) end

--- A variable of this process and its children.
---@param name string
---@param value string
function process.set(name, value) end

--- Work in this folder from now on.
---@param dir string
function process.enter(dir) end

--- From now on SIGPIPE is ignored, here and in programs that this one starts.
function process.outlive_readers() end

--- What is written to this stream from now on goes nowhere, and no error of it is left.
---@param file file*
function process.drop(file) end

--- This program from its start; returns only by raising.
---@param words string[]
---@param variables table
function process.restart(words, variables) end

---@class moonreel.core.process.run.options
---@field deadline_s? number Seconds until it is killed. Default: 60.
---@field output_bytes? integer More output than this ends it too. Default: 67108864.
---@field quiet? boolean Its error output goes nowhere. Default: false.

--- Run a program: {output, exit or signal, timed_out, too_long, peak_bytes, cpu_s}.
---@param words string[]
---@param input? string
---@param options? moonreel.core.process.run.options
---@return table
function process.run(words, input, options) end

--- Start a program that goes on by itself, in a session of its own, and prints where this one prints errors; its number.
---@param words string[]
---@return integer
function process.leave(words) end

return process
