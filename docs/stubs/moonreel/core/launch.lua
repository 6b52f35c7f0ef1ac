---@meta moonreel.core.launch
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Ranks of this host, as processes of this program.
---@class moonreel.core.launch
local launch = {}

---@class moonreel.core.launch.start.options
---@field grace_s? number Between the message, SIGTERM and SIGKILL. Default: 2.
---@field first? integer Their first number in the run. Default: 0.
---@field world? integer Ranks of the run; 0: these are all. Default: 0.

--- Start this program as `ranks` processes on this host.
---@param words string[]
---@param ranks integer
---@param options? moonreel.core.launch.start.options
---@return mr.Launch
function launch.start(words, ranks, options) end

--- A socket at a free port of an interface or address (default: all), for a rank 0 that this process starts: descriptor, port.
---@param where? string
---@return integer
---@return integer
function launch.listen(where) end

--- Lets this process open this many files; raises where the system allows fewer, with who needs them.
---@param count integer
---@param who string
function launch.allow_files(count, who) end

--- A descriptor that ranks inherit, with a text that no other process reads.
---@param text string
---@return integer
function launch.hide(text) end

return launch
