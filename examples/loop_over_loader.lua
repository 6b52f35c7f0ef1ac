--- A loop over a loader: batches of decoded clips in the order of training, and what is in them.
--
--   moonreel examples/loop_over_loader.lua INDEX.mrx [frames] [batch size]
local data = require "moonreel.data"

local path, frames = arg[1], math.tointeger(tonumber(arg[2] or 2))
local batch_size = math.tointeger(tonumber(arg[3] or 2))
if not (path and frames and batch_size) then
  io.stderr:write("usage: moonreel examples/loop_over_loader.lua INDEX.mrx [frames] [batch size]; ",
    "got: ", table.concat(arg, " "), "\n")
  return 2
end

local index <close> = data.open(path)
print(index)

-- one bucket: every clip that is long enough, at the size of the first one
local row = index:row(1)
local loader <close> = data.loader { index = index, epochs = 1, threads = 2,
  resolutions = { own = { pixels = row.height * row.width,
    aspects = { { row.height / row.width, row.height, row.width } } } },
  bucket_config = { own = { [frames] = { 1.0, batch_size } } } }

for rule, rows in pairs(loader:plan().dropped) do
  print(("left out: %d samples, %s"):format(rows, rule))
end

local seen = 0
while true do
  local batch = loader:next()
  if not batch then
    break
  end
  -- [B, T, 3, H, W] over the loader's own memory: read it before the release
  local pixels = batch:tensor()
  print(("batch %d: [%s], mean %.2f"):format(batch.draw, table.concat(pixels.shape, ", "),
    pixels:mean()))
  for slot = 1, batch.n do
    print(("  sample %d from frame %d: %s"):format(batch.ids[slot], batch.starts[slot],
      batch.captions[slot]))
  end
  seen = seen + batch.n
  loader:release(batch)
end
print(("%d samples"):format(seen))
