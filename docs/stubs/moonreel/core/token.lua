---@meta moonreel.core.token
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Texts as ids of pieces; moonreel.token is what people use.
---@class moonreel.core.token
local token = {}

--- Read a SentencePiece unigram model, as spiece.model of T5.
---@param path string
---@return mr.Pieces
function token.open(path) end

--- The words of a text in small letters, with one space between them, as byte pairs of CLIP are built in them.
---@param text string
---@return string
function token.words(text) end

return token
