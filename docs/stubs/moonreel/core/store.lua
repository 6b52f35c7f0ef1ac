---@meta moonreel.core.store
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Values under keys, written once and sealed; moonreel.cache uses it.
---@class moonreel.core.store
local store = {}

--- Create a store, or continue an unfinished one.
---@param path string
---@return mr.StoreWriter
function store.create(path) end

---@class moonreel.core.store.open.options
---@field verify? boolean Compare every block of the file first. Default: false.

--- Read a sealed store.
---@param path string
---@param options? moonreel.core.store.open.options
---@return mr.Store
function store.open(path, options) end

return store
