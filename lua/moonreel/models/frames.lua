--- Rules for the numbers of frames that an autoencoder accepts: "any", "1", or forms as "4n" and
-- "4n+1", with "or" between them.
-- @module moonreel.models.frames

-- first + step n frames, with n from 0 on; step nil: first alone; nil: no form
local function form_of(text)
  if text == "any" then
    return { first = 1, step = 1 }
  end
  local step, first = text:match "^([1-9]%d*)n$", nil
  if not step then
    step, first = text:match "^([1-9]%d*)n%+(%d+)$"
  end
  first = math.tointeger(first or step or text:match "^[1-9]%d*$")
  return first and { first = first, step = math.tointeger(step) }
end

--- Reads a rule.
---@param rule any
---@return table[]|nil forms  {first, step}: first + step n frames, with n from 0 on; step nil:
---   first alone. nil: it is no rule
return function(rule)
  local forms = {}
  for text in (tostring(rule) .. " or "):gmatch "(.-) or " do
    local form = type(rule) == "string" and form_of(text)
    if not form then
      return nil
    end
    forms[#forms + 1] = form
  end
  return forms
end
