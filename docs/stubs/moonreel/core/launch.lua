---@meta moonreel.core.launch
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Ranks of this host, as processes of this program.
---@class moonreel.core.launch
local launch = {}

---@class moonreel.core.launch.start.options
---@field grace_s? number Seconds between the message, SIGTERM and SIGKILL. Default: 2.
---@field first? integer Number of the first rank in the run. Default: 0.
---@field world? integer Ranks of the run; 0: only these. Default: 0.

--- Start this program as `ranks` processes on this host.
---@param words string[]
---@param ranks integer
---@param options? moonreel.core.launch.start.options
---@return mr.Launch
function launch.start(words, ranks, options) end

--- A listening socket at a free port of an interface or address (default: all), for a rank 0 that this process starts: descriptor, port.
---@param where? string
---@return integer
---@return integer
function launch.listen(where) end

--- Raise the limit of open files to this number; an error, which names `who`, if the system allows fewer.
---@param count integer
---@param who string
function launch.allow_files(count, who) end

--- A descriptor with a text that ranks inherit and other processes cannot read.
---@param text string
---@return integer
function launch.hide(text) end

return launch
