---@meta moonreel.core.stream
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Child processes with pipes, several at a time.
---@class moonreel.core.stream
local stream = {}

--- Start a program in a new session: {pid, input, output, errors}.
---@param words string[]
---@return table
function stream.spawn(words) end

--- The exit code of a child, or 128 + its signal; nil: it still runs, and was not killed. MR_E_USAGE: the process is no child of this one.
---@param pid integer
---@param kill? boolean
---@return integer?
function stream.reap(pid, kill) end

--- Wait until one of them can be read or has written its queue, at most this long.
---@param streams mr.Stream[]
---@param ms integer
---@return boolean
function stream.wait(streams, ms) end

--- Standard input and output of this process as {input, output}; later output of this process and its children arrives at {lines, errors}.
---@return table
function stream.standard() end

return stream
