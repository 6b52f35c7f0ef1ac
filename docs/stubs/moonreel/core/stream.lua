---@meta moonreel.core.stream
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Children to talk with, several at once.
---@class moonreel.core.stream
local stream = {}

--- Start a program in a session of its own: {pid, input, output, errors}.
---@param words string[]
---@return table
function stream.spawn(words) end

--- Exit code of a child, 128 + number of a signal; nil: it runs, and is not killed.
---@param pid integer
---@param kill? boolean
---@return integer?
function stream.reap(pid, kill) end

--- Until one of them can be read or has written what waits, at most so long.
---@param streams mr.Stream[]
---@param ms integer
---@return boolean
function stream.wait(streams, ms) end

--- This process's input and output as {input, output}; from then on what it and its children print is read at {lines, errors}.
---@return table
function stream.standard() end

return stream
