--- The events of a data-parallel step: when each collective runs, and which computation it
-- overlaps.
-- Ref: reference parallelism 2, 3 and 9.
-- @module moonreel.plan.schedule
local collective = require "moonreel.plan.collective"
local simulate = require "moonreel.plan.simulate"

local schedule = {}

--- The parts of a step.
---@class moonreel.plan.Step
---@field forward_s number
---@field backward_s number
---@field parameters number
---@field bucket number        elements of a bucket
---@field gather_bytes number|nil  bytes of a gathered element: 2, or 1 if weights are sent in FP8
---@field reduce_bytes number|nil  bytes of a reduced element: 2, or 4 if gradients are sent in f32
---@field group moonreel.plan.Group
---@field two_hops boolean|nil first inside the nodes
---@field gather string|nil    "exposed" (default): all weights are gathered before the forward
---   pass; "twice": each bucket before its readers in both passes, two at a time (ZeRO 3);
---   "updated": each after its update; "sums": not the weights, but the reduced gradients, to all
---   ranks, before the update (ZeRO 0); "none"
---@field reduce string|nil    "each" (default): a bucket when the backward pass has finished it;
---   "last": all buckets after the pass, for sums of several micro-steps; "none"
---@field input_s number|nil   copy of the next batch to the device
---@field encode_s number|nil  encoders, before everything else
---@field update_s number|nil  the update, bucket by bucket, when the norm of all gradients is known
---@field snapshot_s number|nil  copy of the state to the host, in a step that saves: the update
---   waits for it
---@field write_s number|nil   writing that copy to the disk

-- adds one event if it takes time; returns it, or nil
local function add_event(events, stream, name, seconds, before)
  if (seconds or 0) > 0 then
    events[#events + 1] = { stream = stream, name = name, seconds = seconds, after = before }
    return #events
  end
end

-- adds the collectives of bucket k, after `before`; returns its last event, nil for a single rank
local function add_collective(events, m, step, what, elements, before, k)
  if step.group.gpus * step.group.nodes == 1 then
    return nil
  end
  local bytes = elements
    * ((what == "gather" and step.gather_bytes or what == "reduce" and step.reduce_bytes) or 2)
  if not step.two_hops then
    local stream = step.group.nodes > 1 and "comm_inter" or "comm_intra"
    events[#events + 1] = { stream = stream, name = what, bucket = k, after = before,
      seconds = collective.flat(m, step.group, bytes) }
    return #events
  end
  local intra, inter = collective.two_hops(m, step.group, bytes)
  local hops = { { "comm_intra", intra }, { "comm_inter", inter } }
  for i = 1, 2 do
    -- a reduction first goes inside the nodes, a gather first between them
    local hop = hops[what == "reduce" and i or 3 - i]
    events[#events + 1] = { stream = hop[1], seconds = hop[2], name = what, bucket = k,
      after = before }
    before = { #events }
  end
  return #events
end

-- the events of these that exist
local function known(...)
  local list = {}
  for i = 1, select("#", ...) do
    list[#list + 1] = (select(i, ...))
  end
  return list
end

--- The events of one step.
---@param m table  machine
---@param step moonreel.plan.Step
---@return moonreel.plan.Event[]
function schedule.events(m, step)
  local events, buckets = {}, math.ceil(step.parameters / step.bucket)
  local gather, reduce = step.gather or "exposed", step.reduce or "each"
  local function elements(k)
    return k < buckets and step.bucket or step.parameters - (buckets - 1) * step.bucket
  end
  local function tell(what, k, ...)
    return add_collective(events, m, step, what, elements(k), known(...), k)
  end
  local function compute(what, k, seconds, ...)
    local at = add_event(events, "compute", what, (seconds or 0) * elements(k) / step.parameters,
      known(...))
    if at then
      events[at].bucket = k
    end
    return at
  end
  -- the batch of the next step is copied in parallel with this one
  add_event(events, "h2d", "input", step.input_s)
  local snapshot = add_event(events, "d2h", "snapshot", step.snapshot_s)
  add_event(events, "disk", "write", step.write_s, { snapshot })
  local encode = add_event(events, "compute", "encode", step.encode_s)
  local all
  for k = 1, gather == "exposed" and buckets or 0 do
    all = tell("gather", k, encode)
  end
  -- buckets in the order in which they are computed, forward and back
  local ends, gathered, reduced = {}, {}, nil
  local function bucket_of(pass) return pass <= buckets and pass or 2 * buckets + 1 - pass end
  -- weights of the pass before the last are freed for those of the next
  local function ask(pass)
    if gather == "twice" and pass <= 2 * buckets then
      gathered[pass] = tell("gather", bucket_of(pass), ends[pass - 2] or encode)
    end
  end
  ask(1)
  for pass = 1, 2 * buckets do
    local k, forward = bucket_of(pass), pass <= buckets
    -- a gather is sent before the reduction that would delay it
    ask(pass + 1)
    ends[pass] = compute(forward and "forward" or "backward", k,
      forward and step.forward_s or step.backward_s, gathered[pass] or all or encode)
      or ends[pass - 1]
    if not forward and reduce == "each" then
      reduced = tell("reduce", k, ends[pass])
    end
  end
  for k = reduce == "last" and buckets or 0, 1, -1 do
    reduced = tell("reduce", k, ends[2 * buckets])
  end
  local before = reduced or ends[2 * buckets]
  if reduced and (step.update_s or 0) > 0 then
    -- one number of each rank
    local intra, inter = collective.two_hops(m, step.group, 8)
    before = add_event(events, "comm_intra", "norm", intra + inter, { reduced })
  end
  for k = 1, buckets do
    local sums = gather == "sums" and tell("gather", k, before) or nil
    local updated = compute("update", k, step.update_s, sums or before, snapshot)
    if gather == "updated" then
      tell("gather", k, updated or before)
    end
  end
  return events
end

--- Seconds of one step, including the slowest of all ranks.
---@param m table
---@param step moonreel.plan.Step
---@param sigma number|nil  deviation of ranks' compute, 0
---@return number seconds
---@return moonreel.plan.Times times
---@return moonreel.plan.Event[] events
function schedule.seconds(m, step, sigma)
  local ranks = step.group.gpus * step.group.nodes
  local slow = simulate.slowest(ranks, sigma or 0)
  local drawn = setmetatable({ forward_s = step.forward_s * slow,
    backward_s = step.backward_s * slow, encode_s = (step.encode_s or 0) * slow },
    { __index = step })
  local events = schedule.events(m, drawn)
  local times = simulate.run(events, m.communication_share)
  return times.seconds, times, events
end

-- seconds of all events with a name
local function named(events, times, name)
  local seconds = 0
  for i, event in ipairs(events) do
    if event.name == name then
      seconds = seconds + times.finish[i] - times.start[i]
    end
  end
  return seconds
end

local gathers = { [0] = "sums", "updated", "updated", "twice" }

--- The last micro-step of a step and its update, as in a run: f32 gradients are reduced, between
-- nodes in two hops. With `each`, a micro-step before it: does it reduce?
---@param mesh moonreel.plan.Mesh
---@param work table  forward_s, backward_s, parameters, bucket (elements), weight_bytes (per
---   element; 2); input_s, encode_s, update_s; reduce as in moonreel.plan.Step
---@param each boolean|nil
---@return table how  {step, seconds, events, times; reduce, gather: seconds of all such events}
function schedule.of(mesh, work, each)
  -- ranks with the same slices of layers; such groups communicate at the same time
  local step = setmetatable({ group = { gpus = mesh.gpus // mesh.layers, nodes = mesh.nodes,
      parallel = mesh.layers },
    two_hops = mesh.nodes > 1, reduce_bytes = 4, gather = gathers[mesh.zero],
    gather_bytes = mesh.zero == 0 and 4 or work.weight_bytes }, { __index = work })
  if each ~= nil then
    step.update_s, step.reduce = 0, each and "each" or "none"
    step.gather = step.gather == "twice" and step.gather or "none"
  end
  local seconds, times, events = schedule.seconds(mesh.machine, step)
  return { step = step, seconds = seconds, times = times, events = events,
    reduce = named(events, times, "reduce"), gather = named(events, times, "gather") }
end

--- The events of a batch of clips that are encoded, decoded and written, while decoder processes
-- read the next batch.
---@param s table     seconds: read, encode, decode, files
---@return table how  {seconds, events, times}
function schedule.of_clips(s)
  local events = {}
  add_event(events, "read", "read", s.read)
  local encoded = add_event(events, "compute", "encode", s.encode)
  local decoded = add_event(events, "compute", "decode", s.decode, { encoded })
  add_event(events, "files", "files", s.files, { decoded or encoded })
  local times = simulate.run(events)
  return { seconds = times.seconds, times = times, events = events }
end

--- The same step while the state is saved.
---@param mesh moonreel.plan.Mesh
---@param how table   from schedule.of
---@param save table  snapshot_s, write_s
---@return table how  {seconds, events, times}
function schedule.saving(mesh, how, save)
  local step = setmetatable({ snapshot_s = save.snapshot_s, write_s = save.write_s },
    { __index = how.step })
  local seconds, times, events = schedule.seconds(mesh.machine, step)
  return { seconds = seconds, times = times, events = events }
end

return schedule
