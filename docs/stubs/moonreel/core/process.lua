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

--- 32 digits that identify the build of the program.
---@return string
function process.build_id() end

---@class moonreel.core.process.limit.options
---@field memory_bytes? integer Address space; above it allocations fail. A lower limit stays. Default: 0.
---@field cpu_s? number Processor time; after it the process is killed. Default: 0.

--- Lower the limits of memory and processor time of this process permanently.
---@param options moonreel.core.process.limit.options
function process.limit(options) end

--- The path of a plug-in; else nil and where it was searched.
---@param name string
---@return string?
---@return string?
function process.plugin(name) end

--- Limits of the system for this process: {files, locked_bytes}; absent: no limit.
---@return table
function process.allowed() end

--- A variable of the environment; nil for one that this program has set itself.
---@param name string
---@return string?
function process.variable(name) end

--- Set a variable for this process and its children.
---@param name string
---@param value string
function process.set(name, value) end

--- Change the working folder.
---@param dir string
function process.enter(dir) end

--- Ignore SIGPIPE from now on, here and in programs that this one starts.
function process.outlive_readers() end

--- Discard all further output of this stream, and clear its error.
---@param file file*
function process.drop(file) end

--- Start this program again; returns only with an error.
---@param words string[]
---@param variables table
function process.restart(words, variables) end

---@class moonreel.core.process.run.options
---@field deadline_s? number Seconds until it is killed. Default: 60.
---@field output_bytes? integer More output than this ends the program, too. Default: 67108864.
---@field quiet? boolean Discard its error output. Default: false.

--- Run a program: {output, exit or signal, timed_out, too_long, peak_bytes, cpu_s}.
---@param words string[]
---@param input? string
---@param options? moonreel.core.process.run.options
---@return table
function process.run(words, input, options) end

--- Start a program in a new session, which outlives this one and prints to standard error of this one. Returns its process id.
---@param words string[]
---@return integer
function process.leave(words) end

return process
