---@meta moonreel.core.signal
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Stop requests from outside.
---@class moonreel.core.signal
local signal = {}

--- From now on the first SIGINT, SIGTERM or SIGHUP is remembered, and ends long calls of the core with MR_E_STOPPED where `calls` is true; the second SIGINT or SIGTERM ends the process. A SIGHUP that was ignored stays so. False: that is so already.
---@param calls? boolean
---@return boolean
function signal.catch(calls) end

--- The signal that came first: 1, 2 or 15.
---@return integer?
function signal.pending() end

--- The signal that came first, which is forgotten: the next one is a first one again.
---@return integer?
function signal.take() end

--- Does the first one that is remembered raise MR_E_STOPPED, too, and end long calls of the core? Until it is turned off.
---@param on boolean
function signal.raises(on) end

--- The former handling is back.
function signal.release() end

return signal
