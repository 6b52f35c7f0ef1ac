--- Bytes of one rank in memory while a bucket runs, by kind.
-- @module moonreel.plan.held
local cadence = require "moonreel.trainer.cadence"
local coded = require "moonreel.plan.coded"

local held = {}

--- The kinds of bytes of one rank, in the order of the output: {key, title, where}.
held.kinds = {
  { "weights", "weights", "device" }, { "frozen", "frozen weights", "device" },
  { "encoders", "encoders", "device" }, { "gradients", "gradients", "device" },
  { "masters", "master weights", "device" }, { "moments", "moments", "device" },
  { "averages", "averages", "device" }, { "windows", "gathered weights", "device" },
  { "arena", "activations and workspace", "device" },
  { "encoding", "active encoders", "device" },
  { "slots", "inputs, results, constants", "device" },
  { "reserve", "libraries and communication", "device" },
  { "pinned", "activations moved to the host, inputs being copied", "host" },
  { "offloaded", "state of the optimizer", "host" },
  { "slabs", "decoded batches", "host" }, { "clips", "clips that came back", "host" },
  { "snapshots", "checkpoint buffers", "host" },
  { "graphs", "graphs and steps", "host" }, { "program", "the program itself", "host" },
  { "decoders", "decoder processes", "host" },
}

-- private memory of a decoder process, without the shared pages of libraries
local DECODER_BYTES = 13e6

--- Bytes of the loader's ring: slabs for the largest batch (core/data/loader.c).
---@param settings table
---@param list table[]  buckets
---@return integer
function held.slabs(settings, list)
  local largest = 0
  for _, b in ipairs(list) do
    largest = math.max(largest, b.batch * b.frames * 3 * b.height * b.width)
  end
  return math.max(settings.prefetch + 2, 4) * ((largest + 4095) // 4096 * 4096)
end

--- The bytes of one rank that do not depend on the bucket.
---@param shares table  from Compiled:share
---@return table        bytes by kind
function held.fixed(settings, mesh, models, shares)
  local m, bytes = mesh.machine, {}
  for kind, value in pairs(shares.regions) do
    bytes[kind] = value
  end
  bytes.encoders = models.encoders.weights
  bytes.reserve = m.reserve_bytes
  bytes.snapshots = models.job and 0 or cadence.buffer_bytes(settings, shares.saved)
  bytes.program = m.cpu and m.program_bytes or 0
  bytes.decoders = settings.num_workers * DECODER_BYTES
  return bytes
end

-- bytes of block inputs in host memory above the limit of the recipe: {needs, has}
local function above_buffer(settings, step)
  local most = settings.grad_ckpt_buffer_size or 0
  local needs = step.memory.pinned
  return most > 0 and needs > most and { needs = needs, has = most } or nil
end

-- computes the total of a row and whether it fits; if the device is the host, both share one memory
local function settle(row, m)
  row.total = row.bytes.device + (m.cpu and row.bytes.host or 0)
  row.fits = row.total <= m.memory_bytes and not row.above_buffer
end

local function sum(bytes, where)
  local total = 0
  for _, kind in ipairs(held.kinds) do
    total = total + (kind[3] == where and bytes[kind[1]] or 0)
  end
  return total
end

-- the bytes of a compiled shape on the device
local function slots_of(memory)
  return memory.inputs + memory.results + memory.consts
end

-- the same on the host
local function graphs_of(memory)
  return memory.host - memory.staging + memory.staged
end

-- bytes of one rank while a bucket runs; arena and slots are those of the larger of micro-step and
-- update
local function bytes_of(fixed, step, update)
  local bytes = {}
  for key, value in pairs(fixed) do
    bytes[key] = value
  end
  bytes.arena, bytes.windows = math.max(step.memory.arena, update.arena), 0
  -- at the peak of a micro-step, weights and gradients of other ranks are in the arena, too
  if step.windows and step.memory.arena >= update.arena then
    bytes.arena, bytes.windows = bytes.arena - step.windows - step.buckets, step.windows
    bytes.gradients = bytes.gradients + step.buckets
  end
  bytes.slots = slots_of(step.memory) + slots_of(update)
    + math.max(step.memory.landing, update.landing)
  bytes.pinned = step.memory.pinned + step.memory.staged + update.staged + step.memory.ring
  bytes.encoding, bytes.clips = step.encoding, step.clips or 0
  bytes.reserve = bytes.reserve or math.max(step.memory.library, update.library)
  bytes.graphs = step.memory.host + update.host - update.staging
  -- sizes for ranks are rounded to whole bytes
  for key, value in pairs(bytes) do
    bytes[key] = math.ceil(value)
  end
  bytes.device, bytes.host = sum(bytes, "device"), sum(bytes, "host")
  return bytes
end

-- Bytes of the programs of all other buckets: slots, graphs. The recipe limits their bytes, or a
-- codec their number.
local function others_of(kept, all, settings)
  local share = all.programs and coded.share(all.programs)
    or math.min(1, settings.programs_bytes / (all.slots + all.graphs))
  return math.max(0, share * all.slots - kept.slots), math.max(0, share * all.graphs - kept.graphs)
end

--- Bytes of one rank while a bucket runs; arguments and result are those of Open:held.
---@param open table  from plan.open
function held.of(open, b, step, all)
  local own = held.slabs(open.settings, { b })
  -- a search for larger batches may need larger slabs than the table
  open.slabs = open.slabs or held.slabs(open.settings, open.table)
  open.fixed.slabs = math.max(all and all.slabs or open.slabs, own)
  local row = { bytes = bytes_of(open.fixed, step, open.update), slabs = own,
    above_buffer = above_buffer(open.settings, step),
    kept = { slots = slots_of(step.memory), graphs = graphs_of(step.memory),
      programs = step.programs } }
  if all then
    local bytes, slots, graphs = row.bytes, others_of(row.kept, all, open.settings)
    bytes.slots, bytes.graphs = bytes.slots + math.ceil(slots), bytes.graphs + math.ceil(graphs)
    bytes.device, bytes.host = sum(bytes, "device"), sum(bytes, "host")
  end
  settle(row, open.mesh.machine)
  return row
end

--- Programs of all buckets are kept, limited by the recipe. Each row counts those of the others, as
-- far as there is space.
---@param rows table[]         from Open:row
---@return number|nil          bytes that programs may use, if that is less than the recipe's limit
function held.keep_others(rows, settings, m)
  local all, least = { slots = 0, graphs = 0 }, nil
  for _, row in ipairs(rows) do
    all.slots, all.graphs = all.slots + row.kept.slots, all.graphs + row.kept.graphs
    all.programs = row.kept.programs and (all.programs or 0) + row.kept.programs
  end
  for _, row in ipairs(rows) do
    local bytes, kept = row.bytes, row.kept
    local more_slots, more_graphs = others_of(kept, all, settings)
    local wanted, room = more_slots + (m.cpu and more_graphs or 0), m.memory_bytes - row.total
    -- a codec keeps its programs however little space there is
    if wanted > room and room >= 0 and not all.programs then
      more_slots, more_graphs = more_slots * room / wanted, more_graphs * room / wanted
      least = math.min(least or math.huge, kept.slots + kept.graphs + more_slots + more_graphs)
    end
    bytes.slots = bytes.slots + math.floor(more_slots)
    bytes.graphs = bytes.graphs + math.floor(more_graphs)
    bytes.device, bytes.host = sum(bytes, "device"), sum(bytes, "host")
    settle(row, m)
  end
  return least
end

return held
