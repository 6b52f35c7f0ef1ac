--- Numbers as text that says exactly which number it is, in as few digits as do.
-- @module moonreel.text.exact

---@param x number  finite
---@return string
return function(x)
  if math.type(x) == "integer" then
    return ("%d"):format(x)
  end
  local text
  for digits = 15, 17 do
    text = ("%." .. digits .. "g"):format(x)
    if tonumber(text) == x then
      break
    end
  end
  return text
end
