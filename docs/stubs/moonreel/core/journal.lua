---@meta moonreel.core.journal
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Journals: JSON lines that are only appended to.
---@class moonreel.core.journal
local journal = {}

--- Open for append; a line cut by a crash is removed.
---@param path string
---@return mr.Journal
function journal.open(path) end

--- Read from the start.
---@param path string
---@return mr.JournalReader
function journal.read(path) end

return journal
