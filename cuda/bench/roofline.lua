-- moonreel cuda/bench/roofline.lua [RECIPE [MACHINE]]: the floor of a step. For each bucket and op
-- of a recipe it prints the operations and bytes that the ops declare, and a lower bound of their
-- seconds at the peaks of a GPU: the larger of operations over the product peak and bytes over the
-- memory's. Without arguments: the buckets of the Lambda stage 1 that are measured on a GPU, for an
-- H100. Nothing runs; docs/plan.md predicts seconds.
local mesh_of = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local settings = require "moonreel.settings"
local work = require "moonreel.plan.work"

local MEASURED = { ["144p 51"] = true, ["240p 51"] = true, ["360p 51"] = true, ["480p 1"] = true }
local LEAST = 0.01 -- ops with a smaller share of the floor are shown as one line

local recipe, machine = ...
local mesh = mesh_of.parse(machine or "H100")
local baked = settings.bake(recipe or "recipes/opensora-1.2/lambda/stage1.lua", {}, {})
local compiled <close> = require("moonreel.plan.compiled").new(mesh.machine)
local open = plan.open(baked, { mesh = mesh, compiled = compiled })
local product_peak = work.peak(mesh.machine, "", open.models.dtype)

-- seconds of an op at the peaks, and which peak limits it
local function floor_of(op)
  local by_flop = op.flop / work.peak(mesh.machine, op.op, open.models.dtype)
  local by_bytes = op.bytes / mesh.machine.peak.memory
  return math.max(by_flop, by_bytes), by_flop >= by_bytes and "products" or "memory"
end

local function row_of(name, calls, flop, bytes, floor_s, limit)
  return { name, calls, flop / 1e12, bytes / 1e9, floor_s * 1e3, limit }
end

local function bucket(b)
  local row = open:row(b)
  local floor_s, flop, bytes, lines = 0, 0, 0, {}
  local rest = { calls = 0, flop = 0, bytes = 0, floor_s = 0 }
  for _, op in ipairs(row.ops) do
    floor_s = floor_s + floor_of(op)
    flop, bytes = flop + op.flop, bytes + op.bytes
  end
  for _, op in ipairs(row.ops) do
    local seconds, limit = floor_of(op)
    if seconds >= LEAST * floor_s then
      lines[#lines + 1] = row_of(op.op, op.calls, op.flop, op.bytes, seconds, limit)
    else
      rest = { calls = rest.calls + op.calls, flop = rest.flop + op.flop,
        bytes = rest.bytes + op.bytes, floor_s = rest.floor_s + seconds }
    end
  end
  table.sort(lines, function(x, y) return x[5] > y[5] end)
  lines[#lines + 1] = row_of("others", rest.calls, rest.flop, rest.bytes, rest.floor_s, "")
  lines[#lines + 1] = row_of("all", "", flop, bytes, floor_s, "")
  print(("\n%s x %d frames, %d x %d, batch %d: %d tokens; at the floor %.0f TFLOP/s that count, "
    .. "%.0f %% of the peak"):format(b.resolution, b.frames, b.height, b.width, b.batch, row.tokens,
    row.useful / floor_s / 1e12, 100 * row.useful / floor_s / product_peak))
  print(("%-26s %6s %10s %10s %10s  %s"):format("op", "calls", "TFLOP", "GB", "floor ms", "by"))
  for _, line in ipairs(lines) do
    print(("%-26s %6s %10.3f %10.3f %10.3f  %s"):format(table.unpack(line)))
  end
end

print(("%s on %s: %s peak %.0f TFLOP/s, memory %.2f TB/s; forward, recomputation, backward"):format(
  recipe or "Lambda stage 1", mesh.machine.name, open.models.dtype, product_peak / 1e12,
  mesh.machine.peak.memory / 1e12))
for _, b in ipairs(open:buckets()) do
  if recipe or MEASURED[b.resolution .. " " .. b.frames] then
    bucket(b)
  end
end
