--- The work of a program's steps, and its seconds. A row is one from mr.Program times() or, for all
-- steps of one kind, from kinds(): op, flop, bytes, expected, backward, again, count (nil: one).
-- @module moonreel.plan.work
local machine = require "moonreel.plan.machine"
local rates = require "moonreel.plan.rates"

local work = {}

-- the class of an op by the beginning of its name; a machine has a rate for each class
local CLASSES = {
  { "linear", "product" }, { "matmul", "product" }, { "attention", "attention" },
  { "conv", "convolution" }, { "muon", "product" },
}

-- classes of names that were used: a plan has thousands of nodes but few ops
local classes = setmetatable({}, { __index = function(known, op)
  local class = "stream"
  for _, row in ipairs(CLASSES) do
    if op:sub(1, #row[1]) == row[1] then
      class = row[2]
      break
    end
  end
  known[op] = class
  return class
end })

--- The class of an op, as machines give rates: "product", "attention", "convolution" or "stream".
---@param op string
---@return string
function work.class(op) return classes[op] end

--- Operations that count as useful: those of products, convolutions and attention. Operations that
-- the gradient of attention repeats count once; recomputed ones do not count.
---@param rows table[]
---@return number
function work.useful(rows)
  local flop = 0
  for _, row in ipairs(rows) do
    if not row.again and work.class(row.op) ~= "stream" then
      flop = flop + (row.op == "attention_grad" and row.flop * 4 / 5 or row.flop)
        * (row.count or 1)
    end
  end
  return flop
end

--- Peak operations per second of a machine's products.
---@param m table      machine
---@param op string    its name shows products of 8 bits
---@param dtype string compute dtype
---@return number
function work.peak(m, op, dtype)
  local f8 = op:sub(-3) == "_f8" and m.peak.fp8
  return f8 or dtype == "f32" and m.peak.f32 or m.peak.bf16
end

-- keys of a query and width of a head: from [B, groups, N, heads, D] of queries, then keys; nil for
-- ops that join results of parts
local function attention_of(row)
  local keys, head = row.shapes:match "^%b[] %w+, %[%d+, %d+, (%d+), %d+, (%d+)%]"
  return math.tointeger(tonumber(keys)), math.tointeger(tonumber(head))
end

-- operations per second of a class of a machine's kernels in bf16
local function rate_of(m, row, class)
  if class ~= "attention" then
    return m.rate[class]
  end
  local keys, head = attention_of(row)
  return keys and machine.attention(m, keys, head, row.op == "attention_grad") or m.rate.attention
end

-- seconds, and the field of the machine that decides them
local function rated(m, row, dtype, others)
  local measured = m.ops and rates.seconds(m, row, others)
  if measured then
    return measured + m.rate.step_s, "ops"
  elseif m.here then
    return row.expected, "here"
  end
  local class = work.class(row.op)
  local moved = row.bytes / (m.rate.stream * m.peak.memory)
  if class == "stream" then
    return moved, "rate.stream"
  end
  local rate = rate_of(m, row, class) * (work.peak(m, row.op, dtype) / m.peak.bf16)
  local computed = row.flop / rate
  return math.max(computed, moved), computed > moved and "rate." .. class or "rate.stream"
end

--- Seconds of one program step on a machine. They come from steps that were measured on it. Without
-- a measurement of this op they come from the machine's rate for its class, or from its bytes and
-- the memory's bandwidth, whichever is longer. For this host they come from probed rates. A machine
-- with `slower` takes that much longer.
---@param m table      machine
---@param row table
---@param dtype string compute dtype: f32 products reach the same share of a smaller peak, 8-bit
---   products of a larger one, if the machine has it
---@param others boolean|nil  use only rates of steps of other sizes
---@return number seconds
---@return string field   of the machine, that decides them; "here": a probe made now
---@return number launch  seconds of the launch in these, if they are a separate figure
function work.seconds(m, row, dtype, others)
  local seconds, field = rated(m, row, dtype, others)
  -- measured and probed seconds include it already
  local launch = not (field == "ops" or field == "here") and m.launch_s or 0
  return (m.slower or 1) * (seconds + launch), field, (m.slower or 1) * launch
end

--- Seconds by part of a step.
---@param m table
---@param rows table[]
---@param dtype string
---@return table parts  {forward, recompute, backward}
---@return table ops    by op: {op, calls, seconds, flop, bytes, guessed: the machine was measured
---   without this op}, longest first
---@return table by  seconds by the field of the machine that decides them
function work.parts(m, rows, dtype)
  local parts, by_op, ops, by = { forward = 0, recompute = 0, backward = 0 }, {}, {}, {}
  for _, row in ipairs(rows) do
    local seconds, field, launch = work.seconds(m, row, dtype)
    local count = row.count or 1
    seconds, launch = count * seconds, count * launch
    by[field] = (by[field] or 0) + seconds - launch
    by.launch_s = (by.launch_s or 0) + launch
    local part = row.again and "recompute" or row.backward and "backward" or "forward"
    parts[part] = parts[part] + seconds
    local op = by_op[row.op]
    if not op then
      op = { op = row.op, calls = 0, seconds = 0, flop = 0, bytes = 0 }
      by_op[row.op], ops[#ops + 1] = op, op
    end
    op.calls, op.seconds = op.calls + count, op.seconds + seconds
    op.guessed = op.guessed or m.ops ~= nil and not rates.known(m, row)
    op.flop, op.bytes = op.flop + count * row.flop, op.bytes + count * row.bytes
  end
  table.sort(ops, function(a, b) return a.seconds > b.seconds end)
  return parts, ops, by
end

return work
