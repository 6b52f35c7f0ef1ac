--- Members of tar files (POSIX ustar), the format of shards.
-- @module moonreel.data.tar
local base = require "moonreel.core.base"

local tar = {}

local BLOCK, NAME, SIZE_AT, SUM_AT = 512, 100, 125, 149

-- the sum of a header's bytes, with spaces in place of the sum itself
local function sum_of(header)
  local sum = 0
  for at = 1, BLOCK do
    sum = sum + ((at >= SUM_AT and at < SUM_AT + 8) and 32 or header:byte(at))
  end
  return sum
end

--- The header in front of a member's bytes.
---@param name string   of at most 100 bytes
---@param bytes integer
---@return string
function tar.header(name, bytes)
  local function octal(value, digits) return ("%0" .. digits .. "o\0"):format(value) end
  local function field(text, n) return text .. ("\0"):rep(n - #text) end
  local head = field(name, NAME) .. octal(420, 7) .. octal(0, 7) .. octal(0, 7)
    .. octal(bytes, 11) .. octal(0, 11)
  local tail = "0" .. field("", 100) .. "ustar\0" .. "00" .. field("", 64) .. octal(0, 7)
    .. octal(0, 7) .. field("", 167)
  return head .. ("%06o\0 "):format(sum_of(head .. (" "):rep(8) .. tail)) .. tail
end

--- The padding after them.
---@param bytes integer
---@return string
function tar.padding(bytes) return ("\0"):rep(-bytes % BLOCK) end

--- The bytes of a member in a file: header, bytes and padding.
---@param bytes integer
---@return integer
function tar.span(bytes) return BLOCK + bytes + -bytes % BLOCK end

--- The end of a tar file.
tar.close = ("\0"):rep(2 * BLOCK)

local function fail(path, at, ...)
  base.raise("MR_E_DATA", ("%s: damaged at byte %d: %s; try: export or copy it again"):format(path,
    at, (...):format(select(2, ...))))
end

-- name and size of the member whose header is at `at`; nil: the file ends here
local function parse(path, header, at)
  if not header or #header < BLOCK then
    fail(path, at, "the file ends there; expected another member, or the end mark of a tar file")
  end
  if header == tar.close:sub(1, BLOCK) then
    return nil
  end
  local stated = tonumber(header:match("^%s*([0-7]+)", SUM_AT) or "", 8)
  if stated ~= sum_of(header) then
    fail(path, at, "the checksum of a header is %d, but the header has %s", sum_of(header),
      stated or "none")
  end
  local bytes = tonumber(header:match("^[0-7]+", SIZE_AT) or "", 8)
  if not bytes then
    fail(path, at, "the header of a member has no size")
  end
  return header:sub(1, NAME):match("^[^\0]*"), bytes
end

--- Iterates over the members of a file. Between two steps the caller may read any part of a member.
---@param file file     of Lua, open for reading
---@param path string   for errors
---@return function     name, bytes, at: its position, from 0
function tar.members(file, path)
  local next_at, size = 0, file:seek("end")
  return function()
    file:seek("set", next_at)
    local name, bytes = parse(path, file:read(BLOCK), next_at)
    if not name then
      return nil
    end
    local at = next_at + BLOCK
    if at + bytes > size then
      fail(path, at, "%s has %d bytes, but the file ends after %d of them", name, bytes, size - at)
    end
    file:seek("set", at)
    next_at = next_at + tar.span(bytes)
    return name, bytes, at
  end
end

return tar
