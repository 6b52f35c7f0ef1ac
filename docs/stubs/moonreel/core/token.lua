---@meta moonreel.core.token
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Texts as ids of pieces; use moonreel.token.
---@class moonreel.core.token
local token = {}

--- Read a SentencePiece unigram model, as spiece.model of T5.
---@param path string
---@return mr.Pieces
function token.open(path) end

--- The words of a text in lower case, with one space between them, as CLIP splits a text before byte pair encoding.
---@param text string
---@return string
function token.words(text) end

return token
