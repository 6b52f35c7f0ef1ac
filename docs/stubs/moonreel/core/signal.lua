---@meta moonreel.core.signal
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Stop requests from outside.
---@class moonreel.core.signal
local signal = {}

--- From now on, record the first SIGINT, SIGTERM or SIGHUP. It ends long calls of the core with MR_E_STOPPED if `calls` is true. The second SIGINT or SIGTERM ends the process. An ignored SIGHUP stays ignored. False: signals were caught already.
---@param calls? boolean
---@return boolean
function signal.catch(calls) end

--- The signal that came first: 1, 2 or 15.
---@return integer?
function signal.pending() end

--- The signal that came first. It is cleared, so the next one counts as the first.
---@return integer?
function signal.take() end

--- Whether the first signal also raises MR_E_STOPPED and ends long calls of the core.
---@param on boolean
function signal.raises(on) end

--- Restore the former handling.
function signal.release() end

return signal
