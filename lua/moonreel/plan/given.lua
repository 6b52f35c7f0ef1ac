--- Parts of a pipeline whose results come from outside the step: features of captions. A plan puts
-- them in place of a text encoder that this program does not build yet.
-- @module moonreel.plan.given

local given = {}

local Features = {}
Features.__index = Features

function Features:inputs(g, B)
  return { y = g:input("text", self.dtype, { B, self.max_length, self.width }),
    len = g:input("text_len", "i32", { B }) }
end

function Features.forward(_, _, inputs)
  return inputs.y
end

-- by type: what features are like
local known = {}

function known.t5(fields, dtype)
  return setmetatable({ width = 4096, max_length = fields.model_max_length, dtype = dtype },
    Features)
end

--- A part in place of an encoder.
---@param fields table  of its record, with `type`
---@param dtype string
---@return table|nil part  of a pipeline; nil: nothing is known of this type
function given.part(fields, dtype)
  local make = fields.type and known[fields.type]
  return make and make(fields, dtype) or nil
end

return given
