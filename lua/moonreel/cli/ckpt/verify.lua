--- moonreel ckpt verify: read everything, compare all hashes where there are any.
-- @module moonreel.cli.ckpt.verify
local size = require("moonreel.text.listing").size

return function(opts, spec)
  local c <close> = require("moonreel.ckpt").find(spec, opts.outputs)
  local nonfinite = 0
  if c.manifest then
    c:verify()
  else
    -- no hashes: what can be said is that every byte reads, and which values are numbers
    for _, name in ipairs(c:names()) do
      nonfinite = nonfinite + c:stats(name).nonfinite
    end
  end
  if opts.json then
    print(require("moonreel.core.json").encode({ path = c.path, tensors = #c:names(),
      bytes = c.bytes, hashes = c.manifest ~= nil,
      nonfinite = not c.manifest and nonfinite or nil }, { indent = 2 }))
  elseif c.manifest then
    print(("%s: %d tensors, %s: all hashes match"):format(c.path, #c:names(), size(c.bytes)))
  else
    print(("%s: %d tensors, %s: all read, no hashes to compare, %d values not finite"):format(
      c.path, #c:names(),
      size(c.bytes), nonfinite))
  end
  return 0
end
