--- moonreel ckpt inspect: the contents of a checkpoint; one tensor with its statistics.
-- @module moonreel.cli.ckpt.inspect
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local clean = require "moonreel.text.clean"
local listing = require "moonreel.text.listing"

-- the manifest without its long lists
local function facts(c)
  local out = {}
  for key, value in pairs(c.manifest or {}) do
    if key ~= "files" and key ~= "tensors" then
      out[key] = value
    end
  end
  return out
end

local function show_one(c, info, opts)
  local s = c:stats(info.name)
  if opts.json then
    info.stats, info.shape = s, json.array(info.shape)
    print(json.encode(info, { indent = 2 }))
    return 0
  end
  print(("%s  %s %s  %s"):format(clean(info.name), listing.shape(info.shape),
    info.dtype, listing.size(info.bytes)))
  print(("  %d elements, %d zero, %d not finite"):format(s.n, s.zeros, s.nonfinite))
  print(("  min %.6g  max %.6g  mean %.6g  rms %.6g"):format(s.min, s.max, s.mean, s.rms))
  return 0
end

local function print_facts(c)
  print(c.path)
  if not c.manifest then
    print("  plain weights, not verified: no hashes")
    local found = require("moonreel.ckpt.model").of(c)
    if found then
      print("  " .. require("moonreel.ckpt.model").text(found))
    end
  else
    local m = c.manifest
    print(("  step %d, written %s by run %s, launch %d"):format(m.step, clean(m.written),
      clean(m.run), m.fence))
    print(("  recipe %s, data set %s, seed %d"):format(clean(m.recipe_hash),
      clean(m.dataset_fingerprint), m.seed))
  end
  for key, value in pairs(c.metadata) do
    print(("  %s = %s"):format(clean(key), clean(value)))
  end
end

return function(opts, spec, pattern)
  local c <close> = require("moonreel.ckpt").find(spec, opts.outputs)
  local exact = pattern and c:info(pattern)
  if exact then
    return show_one(c, exact, opts)
  end
  local tensors = c:ls(pattern)
  if pattern and #tensors == 0 then
    -- a tensor that exists and cannot be read raises an error with the reason
    require("moonreel.ckpt.entry")(c, pattern)
    base.raise("MR_E_USAGE",
      ("%s: no tensor matches '%s'; try: moonreel ckpt inspect %s"):format(c.path, pattern, spec))
  end
  if opts.json then
    local rows = json.array()
    for i, one in ipairs(tensors) do
      rows[i] = { name = one.name, dtype = one.dtype, shape = json.array(one.shape),
        bytes = one.bytes }
    end
    print(json.encode({ path = c.path, step = c.step, bytes = c.bytes,
      manifest = c.manifest and facts(c), metadata = c.metadata,
      model = not c.manifest and require("moonreel.ckpt.model").of(c) or nil,
      tensors = rows, refused = json.array(c:refused()) }, { indent = 2 }))
    return 0
  end
  if not pattern then
    print_facts(c)
    print(c:count())
  end
  tensors:all()
  for _, one in ipairs(pattern and {} or c:refused()) do
    print(("%s cannot be read: %s"):format(clean(one.name), one.why))
  end
  return 0
end
