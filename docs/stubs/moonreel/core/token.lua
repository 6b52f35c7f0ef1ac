---@meta moonreel.core.token
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Texts as ids of pieces; moonreel.token is what people use.
---@class moonreel.core.token
local token = {}

--- Read a SentencePiece unigram model, as spiece.model of T5.
---@param path string
---@return mr.Pieces
function token.open(path) end

return token
