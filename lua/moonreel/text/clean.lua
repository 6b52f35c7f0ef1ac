--- Text from files, made safe for a terminal.
-- @module moonreel.text.clean

--- Control characters and broken UTF-8 as \xHH: C0, DEL, the C1 block, marks that turn the
-- direction of writing.
---@param text any
---@return string
return function(text)
  text = tostring(text)
  if not text:find("[%c\127-\255]") then
    return text
  end
  local out, at = {}, 1
  while at <= #text do
    local stop = utf8.offset(text, 2, at)
    local piece = stop and text:sub(at, stop - 1) or text:sub(at, at)
    local ok, code = pcall(utf8.codepoint, piece, 1)
    if not ok then
      piece = text:sub(at, at)
      code = nil
    end
    local hidden = not code or code < 32 or (code >= 127 and code < 160)
      or (code >= 0x200E and code <= 0x200F)
      or (code >= 0x2028 and code <= 0x202E) or (code >= 0x2066 and code <= 0x2069)
        or code == 0xFEFF
    out[#out + 1] = hidden and piece:gsub(".", function(c)
      return ("\\x%02x"):format(c:byte())
    end) or piece
    at = at + #piece
  end
  return table.concat(out)
end
