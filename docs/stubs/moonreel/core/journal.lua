---@meta moonreel.core.journal
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Journals: append-only JSON lines.
---@class moonreel.core.journal
local journal = {}

--- Open for append; removes an incomplete last line.
---@param path string
---@return mr.Journal
function journal.open(path) end

--- Read from the start.
---@param path string
---@return mr.JournalReader
function journal.read(path) end

return journal
