--- Statistics of a checkpoint: layer by layer, read piece by piece, of our checkpoints and of
-- weights of others (safetensors, .pth).
--
--   moonreel examples/checkpoint_statistics.lua CKPT|RUN|WEIGHTS [pattern]
local ckpt = require "moonreel.ckpt"
local names = require "moonreel.ckpt.names"
local listing = require "moonreel.text.listing"

if not arg[1] then
  io.stderr:write("usage: moonreel examples/checkpoint_statistics.lua CKPT|RUN|WEIGHTS [pattern]\n")
  return 2
end
local checkpoint <close> = ckpt.find(arg[1])
local rows, by_layer, bad = {}, {}, 0

for _, name in ipairs(names.matching(names.sort(checkpoint:names()), arg[2])) do
  local kind, parameter = names.kind(name)
  if kind == "weights" then
    local layer = names.layer(parameter)
    local row = by_layer[layer]
    if not row then
      row = { layer = layer, tensors = 0, values = 0, squares = 0, largest = 0 }
      by_layer[layer], rows[#rows + 1] = row, row
    end
    local s = checkpoint:stats(name)
    row.tensors, row.values = row.tensors + 1, row.values + s.n
    row.squares = row.squares + s.rms ^ 2 * (s.n - s.nonfinite)
    row.largest = math.max(row.largest, math.abs(s.min), math.abs(s.max))
    bad = bad + s.nonfinite
  end
end
for _, row in ipairs(rows) do
  row.norm = math.sqrt(row.squares)
end
print(listing.new(rows, { { key = "layer" }, { key = "tensors", right = true },
  { key = "values", right = true }, { key = "norm", right = true },
  { key = "largest", right = true } }, ("%d layers, %d values are not finite"):format(#rows, bad)))
return bad == 0
