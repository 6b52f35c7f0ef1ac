--- moonreel ckpt verify: read everything, compare all hashes where there are any, and say how fast.
-- @module moonreel.cli.ckpt.verify
local base = require "moonreel.core.base"
local size = require("moonreel.text.listing").size

-- whether there was something to compare; damage raises
local function compare(c)
  local ok, problem = pcall(c.verify, c)
  if not ok and problem.code ~= "MR_E_USAGE" then
    error(problem, 0)
  end
  return ok
end

-- weights have no hashes of values: what can be said is that every byte reads, and how many values
-- are no numbers
local function count_nonfinite(c)
  local n = 0
  for _, name in ipairs(c:names()) do
    n = n + c:stats(name).nonfinite
  end
  return n
end

return function(opts, spec)
  local c <close> = require("moonreel.ckpt").find(spec, opts.outputs)
  local began = base.now_s()
  local compared = compare(c)
  local seconds = base.now_s() - began
  local nonfinite = not c.manifest and count_nonfinite(c) or nil
  if opts.json then
    print(require("moonreel.core.json").encode({ path = c.path, tensors = #c:names(),
      bytes = c.bytes, hashes = compared, seconds = seconds, nonfinite = nonfinite },
      { indent = 2 }))
    return 0
  end
  local said = ("%s: %d tensors, %s: "):format(c.path, #c:names(), size(c.bytes))
  if c.manifest then
    print(("%sall hashes match, %.2f GB/s"):format(said, c.bytes * 1e-9 / math.max(seconds, 1e-9)))
  else
    print(("%sall read, %s, %d values not finite"):format(said,
      compared and "all CRCs match" or "no hashes to compare", nonfinite))
  end
  return 0
end
