--- A small writer of files in the format of torch.save: a zip with a pickle and its storages.

local crc_table = {}
for i = 0, 255 do
  local c = i
  for _ = 1, 8 do
    c = c & 1 == 1 and 0xEDB88320 ~ c >> 1 or c >> 1
  end
  crc_table[i] = c
end
local function crc32(text)
  local c = 0xFFFFFFFF
  for i = 1, #text do
    c = crc_table[(c ~ text:byte(i)) & 255] ~ c >> 8
  end
  return c ~ 0xFFFFFFFF
end

-- entries: {name, data, method = 0, crc = computed, listed = crc in the list}
local function zip(path, entries)
  local body, list, at = {}, {}, 0
  for i, e in ipairs(entries) do
    local crc = e.crc or crc32(e[2])
    local facts = string.pack("<I2I2I2I2I2I4I4I4I2", 20, 0, e.method or 0,
      0, 33, crc, #e[2], #e[2], #e[1])
    body[i] = "PK\3\4" .. facts .. "\0\0" .. e[1] .. e[2]
    list[i] = "PK\1\2\20\0" .. (e.listed or facts) .. "\0\0\0\0\0\0\0\0\0\0\0\0"
      .. string.pack("<I4", at) .. e[1]
    at = at + #body[i]
  end
  local directory = table.concat(list)
  local file = assert(io.open(path, "wb"))
  file:write(table.concat(body), directory, "PK\5\6\0\0\0\0",
    string.pack("<I2I2I4I4I2", #entries, #entries, #directory, at, 0))
  file:close()
end

local function text(s) return "X" .. string.pack("<I4", #s) .. s end
local function tuple(...) return "(" .. table.concat { ... } .. "t" end
local function ints(...)
  local out = {}
  for i, n in ipairs { ... } do
    out[i] = "J" .. string.pack("<i4", n)
  end
  return tuple(table.unpack(out))
end
local function storage(type, key, n)
  return tuple(text "storage", "ctorch\n" .. type .. "\n", text(key), text "cpu",
    "J" .. string.pack("<i4", n)) .. "Q"
end
local function tensor(type, key, n, offset, shape, stride)
  return "ctorch._utils\n_rebuild_tensor_v2\n" .. tuple(storage(type, key, n),
    "J" .. string.pack("<i4", offset), shape, stride, "\x89",
    "ccollections\nOrderedDict\n)R") .. "R"
end
local function dict(...)
  local parts = { ... }
  return "}(" .. table.concat(parts) .. "u"
end
local function pickle(value) return "\x80\2" .. value .. "." end

return { zip = zip, text = text, tuple = tuple, ints = ints, storage = storage,
  tensor = tensor, dict = dict, pickle = pickle }
