--- Machines: rates and sizes of a GPU, its node and its network, from machines/NAME.lua or a file
-- of the user. All values are plain numbers in SI units: bytes, seconds, operations or bytes per
-- second.
-- @module moonreel.plan.machine
local app = require "moonreel.app"
local base = require "moonreel.core.base"
local environment = require "moonreel.recipe.environment"
local fault = require "moonreel.recipe.fault"
local nearest = require "moonreel.text.nearest"

local machine = {}

--- Source pixels per second that one core decodes, if not measured: 48 frames of 1080p.
machine.DECODE_RATE = 1e8

--- Pixels per second that one core writes as H.264 at its default quality, if not measured: 40
-- frames of 512 x 512.
machine.ENCODE_RATE = 1e7

--- Fields of a machine file: {path, doc}. A field with `share` may be left out; it is then assumed
-- to be that share of a peak. `whole` marks integers. Fields with `ranks` are about several GPUs: a
-- processor has none of these.
machine.fields = {
  { "name", "text: the name in plans" },
  { "source", "text: where the numbers come from" },
  { "origin", "table of texts, by field or group of fields: measured, data sheet, published or "
    .. "assumed, and by whom", optional = true },
  { "memory_bytes", "memory of one GPU" },
  { "reserve_bytes", "memory for its driver, libraries and collectives", value = 4e9,
    ranks = true },
  { "program_bytes", "host memory of the program itself", optional = true },
  { "peak.bf16", "operations per second of dense bf16 products" },
  { "peak.fp8", "the same in FP8", optional = true },
  { "peak.f32", "the same in f32" },
  { "peak.memory", "bytes per second of its memory" },
  { "rate.product", "operations per second that large products reach",
    of = "peak.bf16", share = 600 / 989 },
  { "rate.attention", "the same for attention, of long rows and heads of 128; attention.* are "
    .. "factors for others", of = "peak.bf16", share = 621 / 989 },
  { "attention.length", "table of {keys, share of rate.attention}, ...: between them by the "
    .. "logarithm of the keys, below the first in proportion to them",
    value = { { 512, 430 / 621 }, { 1024, 517 / 621 }, { 2048, 566 / 621 }, { 4096, 590 / 621 },
      { 8192, 614 / 621 }, { 16384, 1 } }, ranks = true },
  { "attention.head", "table of {width of a head, share of rate.attention}, ...: between them "
    .. "evenly", value = { { 64, 0.75 }, { 128, 1 } }, ranks = true },
  { "attention.backward", "share of rate.attention that its gradient reaches", value = 549 / 613,
    ranks = true },
  { "launch_s", "seconds from the end of a kernel to the start of the next one", value = 3e-6,
    ranks = true },
  { "rate.convolution", "operations per second of a video autoencoder", of = "peak.bf16",
    share = 250 / 989 },
  { "rate.text", "operations per second of a text encoder", of = "peak.bf16", share = 500 / 989 },
  { "rate.stream", "share of the memory's bandwidth that elementwise kernels reach", value = 0.8 },
  { "rate.step_s", "seconds of a program step in addition to its kernel", optional = true },
  { "ops", "table of measured steps, by op and dtypes: {operations, bytes, seconds}, ...",
    optional = true },
  { "cpu.isa", "text: of a processor, which computes in the host's memory: base, avx2, avx512",
    optional = true },
  { "cpu.threads", "of its team", optional = true, whole = true },
  { "cpu.bf16", "yes or no: are its bf16 products fast?", optional = true },
  { "cpu.amx", "yes or no: does it have AMX tiles?", optional = true },
  { "cpu.bf16_by_f32", "yes or no: are its bf16 products faster with instructions for f32?",
    optional = true },
  { "cycle.product", "of a multiprocessor of a GPU in one cycle: multiply-adds of dense bf16",
    optional = true },
  { "cycle.product16", "the same by products of a warp group with 16 columns", optional = true },
  { "cycle.product32", "with 32 columns", optional = true },
  { "cycle.product64", "with 64 columns", optional = true },
  { "cycle.special", "exponentials, reciprocals", optional = true },
  { "cycle.issue", "instructions of a warp", optional = true },
  { "cycle.shared", "bytes of its shared memory", optional = true },
  { "cycle.l2", "bytes of the L2 cache, with all multiprocessors active", optional = true },
  { "cycle.sums", "bytes of f32 that are added to in the L2 cache", optional = true },
  { "cycle.launch_s", "seconds of a launch without waits", optional = true },
  { "cycle.replay_s", "seconds of a node of a graph that is run again", optional = true },
  { "cycle.source", "text: where these come from", optional = true },
  { "node.gpus", "GPUs of one node", ranks = true, whole = true },
  { "node.link", "bytes per second between GPUs of a node, one way, as collectives reach it",
    ranks = true },
  { "node.link_step_s", "seconds that one step of a ring takes inside a node", ranks = true },
  { "network.cards", "network cards of a node", ranks = true, whole = true },
  { "network.card", "bytes per second of one card, one way", ranks = true },
  { "network.step_s", "seconds that one step between nodes takes", ranks = true },
  { "host.pcie", "bytes per second between a GPU and pinned host memory", ranks = true },
  { "host.read", "bytes per second at which a rank reads weights out of files that the host's "
    .. "memory holds", optional = true, ranks = true },
  { "host.disk", "bytes per second that a node writes to the store", value = 2e9, ranks = true },
  { "host.store", "bytes per second that the store accepts from all nodes together", value = 20e9,
    ranks = true },
  { "restart_s", "seconds from a failure to the next step: detection, start, loading", value = 300,
    ranks = true },
  { "decode_rate", "source pixels per second that one core of the host decodes and scales",
    value = machine.DECODE_RATE },
  { "encode_rate", "pixels per second that one core of the host writes to a clip file",
    value = machine.ENCODE_RATE },
  { "communication_share", "share of a GPU that a running collective takes", value = 16 / 132,
    ranks = true },
  { "mtbf_gpu_hours", "GPU hours between two failures", value = 5.1e4, ranks = true },
  { "price_hour", "price of a GPU for an hour, in any currency", optional = true },
}

local rows, groups = {}, {}
for _, field in ipairs(machine.fields) do
  rows[field[1]], groups[field[1]:match("^(.*)%.") or ""] = field, true
end

-- the value at a path like "peak.bf16"
local function at(t, path)
  for key in path:gmatch("[^.]+") do
    t = type(t) == "table" and t[key] or nil
  end
  return t
end

local function put(t, path, value)
  local group, key = path:match("^(.*)%.(.*)$")
  if group then
    t[group] = t[group] or {}
    t = t[group]
  end
  t[key or path] = value
end

-- refuses fields that are not in the list
local function refuse_unknown(t, shown, prefix)
  for key, value in pairs(t) do
    local path = prefix .. tostring(key)
    if type(value) == "table" and groups[path] then
      refuse_unknown(value, shown, path .. ".")
    elseif groups[path] then
      fault.recipe("%s: %s: expected a table, got %s", shown, path, type(value))
    elseif not rows[path] then
      local names = {}
      for _, field in ipairs(machine.fields) do
        names[#names + 1] = field[1]
      end
      local near = nearest(path, names)
      fault.recipe("%s: there is no field '%s' in a machine%s", shown, path,
        near and (", did you mean '" .. near .. "'?") or "")
    end
  end
end

-- the type that a field's doc promises
local function type_of(doc)
  return doc:match("^text") and "string" or doc:match("^table") and "table"
    or doc:match("^yes or no") and "boolean" or "number"
end

-- refuses measured steps that are not three numbers each
local function check_ops(ops, shown)
  for key, points in pairs(ops) do
    for i, point in ipairs(type(points) == "table" and points or { points }) do
      local fine = type(key) == "string" and type(point) == "table" and #point == 3
      for _, number in ipairs(fine and point or {}) do
        fine = fine and type(number) == "number" and number >= 0 and number < math.huge
      end
      if not fine or point[3] <= 0 then
        fault.recipe("%s: ops['%s'][%d]: expected {operations, bytes, seconds}; try: moonreel "
          .. "bench --save NAME", shown, tostring(key), i)
      end
    end
  end
end

-- refuses lists that are not pairs of numbers above 0, from small to large
local function check_points(points, path, shown)
  local last = 0
  for i, point in ipairs(points) do
    local x, share = table.unpack(type(point) == "table" and point or {})
    if type(x) ~= "number" or type(share) ~= "number" or x <= last or share <= 0 then
      fault.recipe("%s: %s[%d]: expected {number, share}, each number larger than the one before",
        shown, path, i)
    end
    last = x
  end
  if last == 0 then
    fault.recipe("%s: %s: expected {{number, share}, ...}, got none", shown, path)
  end
end

-- kinds of origins, with which their texts begin
local ORIGINS = { "measured", "data sheet", "published", "assumed" }

-- refuses origins of unknown fields, and origins without a known kind
local function check_origin(origin, shown)
  for path, text in pairs(origin) do
    if not (rows[path] or groups[path]) then
      fault.recipe("%s: origin: there is no field '%s' in a machine", shown, tostring(path))
    end
    local known = false
    for _, kind in ipairs(ORIGINS) do
      known = known or type(text) == "string" and text:find(kind, 1, true) == 1
    end
    if not known then
      fault.recipe("%s: origin['%s']: expected a text that begins with one of %s, got '%s'", shown,
        path, table.concat(ORIGINS, ", "), tostring(text))
    end
  end
end

-- fills in a field that a file leaves out, and notes it; nil if the field may be missing
local function assume(m, field)
  local value = field.value or field.share and field.share * at(m, field.of)
  if value and not (field.ranks and m.cpu) then
    put(m, field[1], value)
    m.assumed[#m.assumed + 1] = { field = field[1], value = value, of = field.of }
    return value
  end
end

local function check(m, shown)
  if type(m) ~= "table" then
    fault.recipe("%s: expected a table of numbers, got %s; try: copy machines/h100.lua",
      shown, type(m))
  end
  refuse_unknown(m, shown, "")
  m.assumed = {}
  for _, field in ipairs(machine.fields) do
    local path, value, wants = field[1], at(m, field[1]), type_of(field[2])
    if value == nil then
      value = assume(m, field)
    end
    local optional = field.optional or field.ranks and m.cpu
    if value ~= nil and type(value) ~= wants or value == nil and not optional then
      fault.recipe("%s: %s: expected a %s, got %s (%s)", shown, path, wants,
        value == nil and "nothing" or type(value), field[2])
    end
    if wants == "number" and value and not (value > 0 and value < math.huge) then
      fault.recipe("%s: %s: expected more than 0, got %s", shown, path, value)
    elseif field.whole and value and value // 1 ~= value then
      fault.recipe("%s: %s: expected a whole number, got %s", shown, path, value)
    end
  end
  check_ops(m.ops or {}, shown)
  for _, name in ipairs(m.cpu and {} or { "length", "head" }) do
    check_points(m.attention[name], "attention." .. name, shown)
  end
  check_origin(m.origin or {}, shown)
  return m
end

-- the value at x of {{x, value}, ...}, sorted, interpolated linearly; beyond the end the last value
local function on_lines(points, x, scale)
  local before
  for _, point in ipairs(points) do
    if x <= point[1] then
      if not before then
        return point[2]
      end
      local from, to = scale(before[1]), scale(point[1])
      return before[2] + (point[2] - before[2]) * (scale(x) - from) / (to - from)
    end
    before = point
  end
  return before[2]
end

--- Operations per second of attention.
---@param m table            machine
---@param keys integer       keys of a query
---@param head integer       width of a head
---@param backward boolean   for its gradient
---@return number
function machine.attention(m, keys, head, backward)
  if m.cpu then
    return m.rate.attention
  end
  local a = m.attention
  local short = math.min(1, keys / a.length[1][1])
  return m.rate.attention * short * on_lines(a.length, keys, math.log)
    * on_lines(a.head, head, function(x) return x end) * (backward and a.backward or 1)
end

--- The origin of a figure of a machine.
---@param m table       machine
---@param path string   a field; "here": a probe; other names are not figures of a machine
---@return string|nil   begins with measured, data sheet, published or assumed; nil: unknown
function machine.origin(m, path)
  if path == "here" or path == "ops" then
    return path == "ops" and "measured by moonreel bench" or "measured by a probe"
  end
  for _, row in ipairs(m.assumed) do
    if row.field == path then
      return "assumed" .. (row.of and " by its " .. row.of or "")
    end
  end
  if m.here and (path == "decode_rate" or path == "encode_rate") then
    return path == "encode_rate" and "measured by a probe" or "assumed: a core of another host"
  end
  local origin = m.origin or {}
  return origin[path] or origin[path:match("^(.*)%.") or path]
end

--- Names of the shipped machines, sorted.
---@return string[]
function machine.names()
  local names = {}
  for _, path in ipairs(app.embedded_list()) do
    local stem = path:match("^machines/(.*)%.lua$")
    names[#names + 1] = stem and stem:upper()
  end
  return names
end

--- Opens a machine by its name in any case, or by the path of a file. The file is plain data and
-- can call no function.
---@param name string  "H100", "./mine.lua"
---@return table machine  the fields above, and `assumed`: rows {field, value, of} of fields that
---   the file leaves out. Raises MR_E_USAGE for an unknown name (with the nearest one), MR_E_RECIPE
---   for a file with errors.
function machine.open(name)
  local path = "machines/" .. name:lower() .. ".lua"
  local text = not name:find("/", 1, true) and app.embedded(path)
  if not text then
    if not name:find("[/.]") then
      local near = nearest(name:upper(), machine.names())
      fault.usage("there is no machine '%s'%s; expected one of %s; try: a file of your own as "
        .. "./NAME.lua, or plan without --gpus and --machine for this host",
        name, near and (", did you mean '" .. near .. "'?") or "",
        table.concat(machine.names(), ", "))
    end
    if not base.exists(name) then
      fault.usage("there is no machine file '%s'; try: one of %s, or copy machines/h100.lua", name,
        table.concat(machine.names(), ", "))
    end
    path, text = name, base.read_file(name)
  end
  -- with the limits of a recipe: no names, little time and memory
  local chunk, problem = load(text, "@" .. path, "t", {})
  if not chunk then
    fault.recipe("%s", problem)
  end
  local ok, m = environment.guarded("@" .. path, environment.within_budget, chunk)
  if not ok then
    fault.recipe("%s", tostring(m))
  end
  return check(m, path)
end

--- This host as a machine: its memory, and rates from a probe of some milliseconds. Its ranks
-- communicate through its memory; `here` is the open device.
---@param device mr.Device
---@return table machine
function machine.this(device)
  -- measured before the probe, which needs memory for a moment
  local program_bytes = require("moonreel.core.bench").resident()
  local _, total = device:memory()
  local f32, bf16 = device:rates("f32"), device:rates("bf16")
  local facts = device:facts()
  -- a message between ranks is written to shared memory and read from there
  local memory = f32.elementwise[2]
  local link = memory / 4
  return { name = "this machine", node = { gpus = 1, link = link, link_step_s = f32.step },
    here = device, cpu = facts, memory_bytes = total,
    program_bytes = program_bytes,
    peak = { f32 = f32.linear[1], bf16 = bf16.linear[1], memory = memory },
    rate = { product = (facts.bf16 and bf16 or f32).linear[1], attention = f32.attention[1],
      convolution = f32.conv3d[1], text = f32.linear[1], stream = 1, step_s = f32.step },
    decode_rate = machine.DECODE_RATE, encode_rate = machine.ENCODE_RATE, assumed = {},
    source = "a probe made now" }
end

return machine
