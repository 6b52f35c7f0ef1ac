--- moonreel ckpt verify: read everything, compare all hashes if there are any, and report the
-- speed.
-- @module moonreel.cli.ckpt.verify
local base = require "moonreel.core.base"
local size = require("moonreel.text.listing").size

local MOST_PARTS = 1 << 20

-- parses --part into two numbers
local function share_of(text)
  local part, parts = text:match("^(%d+)/(%d+)$")
  part, parts = math.tointeger(tonumber(part)), math.tointeger(tonumber(parts))
  if not part or not parts or part < 1 or part > parts or parts > MOST_PARTS then
    base.raise("MR_E_USAGE", ("ckpt verify: --part: expected I/N with I from 1 to N, as 2/8, and N "
      .. "up to %d, got '%s'"):format(MOST_PARTS, text))
  end
  return part, parts
end

-- Compares what has hashes and returns whether anything had them. Damage raises an error, and so
-- does a share of a plain file.
local function compare(c, part, parts)
  local ok, problem = pcall(c.verify, c, part, parts)
  if not ok and (part or problem.code ~= "MR_E_USAGE") then
    error(problem, 0)
  end
  return ok
end

-- A file of plain weights has no hashes. So this reads every byte, and counts values that are not
-- finite.
local function count_nonfinite(c)
  local n = 0
  for _, name in ipairs(c:names()) do
    n = n + c:stats(name).nonfinite
  end
  return n
end

return function(opts, spec)
  local part, parts
  if opts.part then
    part, parts = share_of(opts.part)
  end
  local c <close> = require("moonreel.ckpt").find(spec, opts.outputs)
  local began = base.now_s()
  local compared = compare(c, part, parts)
  local seconds = base.now_s() - began
  local bytes = part and c:bytes_read() or c.bytes
  local nonfinite = not c.manifest and count_nonfinite(c) or nil
  if opts.json then
    print(require("moonreel.core.json").encode({ path = c.path, tensors = #c:names(),
      bytes = bytes, part = part, parts = parts, hashes = compared, seconds = seconds,
      nonfinite = nonfinite }, { indent = 2 }))
    return 0
  end
  local said = ("%s: %d tensors, %s: "):format(c.path, #c:names(), size(c.bytes))
  if c.manifest then
    local of = part and ("part %d of %d, %s: "):format(part, parts, size(bytes)) or ""
    print(("%s%sall hashes match, %.2f GB/s"):format(said, of,
      bytes * 1e-9 / math.max(seconds, 1e-9)))
  else
    print(("%sall read, %s, %d values not finite"):format(said,
      compared and "all CRCs match" or "no hashes to compare", nonfinite))
  end
  return 0
end
