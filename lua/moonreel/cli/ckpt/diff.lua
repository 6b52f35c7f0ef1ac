--- moonreel ckpt diff: differences between two checkpoints, bit for bit; exit 1 if there are any.
-- @module moonreel.cli.ckpt.diff
local json = require "moonreel.core.json"
local clean = require "moonreel.text.clean"

-- a resume depends on these; run id, launch and times do not count
local compared_facts = { "step", "seed", "sampler", "dataset_fingerprint" }

-- sampler states are long; --json shows them whole
local function short(value)
  local text = clean(value)
  return #text > 60 and text:sub(1, 60) .. "..." or text
end

local function print_difference(d)
  if d.kind ~= "tensor" then
    print(("%s: %s / %s"):format(d.kind, short(d.a), short(d.b)))
  elseif d.only then
    print(("%s: only in %s"):format(clean(d.name), d.only))
  elseif d.a then
    print(("%s: %s / %s"):format(clean(d.name), d.a, d.b))
  else
    print(("%s: %d of %d elements differ, first at %d, largest difference %.6g"):format(
      clean(d.name), d.differing, d.of, d.first, d.max_abs))
  end
end

return function(opts, first, second)
  local ckpt = require "moonreel.ckpt"
  local a <close> = ckpt.find(first, opts.outputs)
  local b <close> = ckpt.find(second, opts.outputs)
  local found = json.array()
  for _, key in ipairs(a.manifest and b.manifest and compared_facts or {}) do
    if a.manifest[key] ~= b.manifest[key] then
      found[#found + 1] = { kind = key, a = a.manifest[key], b = b.manifest[key] }
    end
  end
  local rows, compared = require("moonreel.ckpt.compare").diff(a, b)
  for _, row in ipairs(rows) do
    found[#found + 1] = { kind = "tensor", name = row.name, only = row.only,
      a = row.a, b = row.b, differing = row.differing,
      of = row.of, first = row.first, max_abs = row.max_abs }
  end
  if opts.json then
    print(json.encode({ a = a.path, b = b.path, equal = #found == 0, tensors = compared,
      differences = found }, { indent = 2 }))
  else
    print(("a: %s\nb: %s"):format(a.path, b.path))
    for _, d in ipairs(found) do
      print_difference(d)
    end
    print(#found == 0 and ("equal: %d tensors, bit for bit"):format(compared)
      or ("%d differences"):format(#found))
  end
  return #found == 0 and 0 or 1
end
