--- moonreel ckpt convert: write only weights, under their released names.
-- @module moonreel.cli.ckpt.convert
local base = require "moonreel.core.base"
local names = require "moonreel.ckpt.names"
local averages = require("moonreel.optim.regions").prefix.average
local json = require "moonreel.core.json"
local listing = require "moonreel.text.listing"
local start = require "moonreel.ckpt.start"

return function(opts, spec, path)
  if not path:match("%.safetensors$") then
    base.raise("MR_E_USAGE",
      ("ckpt convert: '%s': expected a name that ends in .safetensors"):format(path))
  end
  local ckpt = require "moonreel.ckpt"
  local c <close> = ckpt.find(spec, opts.outputs)
  local rows = {}
  for _, name in ipairs(names.sort(c:names())) do
    if names.kind(name) == "weights" then
      rows[#rows + 1] = { name = name, from = opts.ema and c:info(averages .. name)
        and averages .. name or name }
    end
  end
  -- the names of tensors do not say everything about a model
  local said = start.said(c)
  local fields = next(said) and { [start.METADATA] = json.encode(said) } or nil
  local done, code = require("moonreel.cli.longwork").run(function()
    c.handle:convert(path, rows, fields)
    return true
  end, "tensors", "nothing was written", true)
  if not done then
    return code
  end
  local written <close> = ckpt.open(path)
  if opts.json then
    print(json.encode({ from = c.path, path = path,
      tensors = #rows, bytes = written.bytes }, { indent = 2 }))
  else
    print(("%s: %d tensors, %s"):format(path, #rows, listing.size(written.bytes)))
  end
  return 0
end
