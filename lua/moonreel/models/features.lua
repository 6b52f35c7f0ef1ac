--- A text encoder that lies apart, as the step of a run sees it: features are an input, which
-- moonreel.embed computes.
-- @module moonreel.models.features
local features = {}

local Features = {}

--- A class of text encoders; a family adds methods to it.
---@return table class  of objects with dtype, max_length, width; embedder once it is loaded
function features.class()
  local class = setmetatable({}, { __index = Features })
  class.__index = class
  return class
end

--- Features of captions as the graph of a run takes them.
---@param captions string[]
---@return table  y [B, max_length, width], len i32 [B]
function Features:tokens(captions) return self.embedder:tokens(captions) end

--- Declare the inputs of a batch of B captions.
function Features:inputs(g, B)
  return { y = g:input("text_y", self.dtype, { B, self.max_length, self.width }),
    len = g:input("text_len", "i32", { B }) }
end

--- Set them on a program.
---@param tokens table  of tokens(); the number of tokens in use may be changed by the caller
function Features.set(_, prog, tokens)
  prog:set("text_y", tokens.y)
  prog:set("text_len", tokens.len)
end

--- Text features.
---@param inputs table  of inputs()
---@return mr.Value     [B, max_length, width]
function Features.forward(_, _, inputs) return inputs.y end

return features
