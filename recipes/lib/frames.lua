--- Bucket entries for spans of lengths: frames(keep, {first, last, batch}, ...) in steps of 4
-- frames.
return function(keep, ...)
  local entries = {}
  for _, span in ipairs { ... } do
    for frames = span[1], span[2], 4 do
      entries[frames] = { keep, span[3] }
    end
  end
  return entries
end
