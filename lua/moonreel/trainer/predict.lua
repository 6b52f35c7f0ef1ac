--- Predicts memory and time of each bucket of a run before its first step.
-- @module moonreel.trainer.predict
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local cadence = require "moonreel.trainer.cadence"
local conditions = require "moonreel.trainer.conditions"
local encoders = require "moonreel.trainer.encoders"
local json = require "moonreel.core.json"
local links = require "moonreel.comm.links"
local process = require "moonreel.core.process"
local program = require "moonreel.trainer.program"
local programs = require "moonreel.trainer.programs"
local progress = require "moonreel.trainer.progress"
local recompute = require "moonreel.trainer.recompute"
local samples = require "moonreel.trainer.samples"
local state = require "moonreel.trainer.state"
local tracking = require "moonreel.trainer.tracking"
local measured = require "moonreel.trainer.measured"
local waits = require "moonreel.trainer.waits"

local predict = {}

--- Number of buckets whose micro-steps are compiled before the first step, in addition to the
-- largest bucket, so that a run that does not fit ends there. The other buckets are compiled when
-- their first batch comes, so that they do not delay the beginning.
predict.ahead = 8

-- elements of the sum by which the speed of communication is measured, and the number of sums
local TALK_ELEMENTS, TALKS = 1 << 18, 3

-- Seconds in which a rank sends a byte, measured now by sums over all ranks; the slowest rank
-- counts. GPUs are not measured, because they communicate while they compute.
local function talk_of(r)
  local world, size = r.team.world, r.team.size
  if not r.ranks or r.facts.device ~= "cpu" then
    return 0
  end
  local x, least = T.new("f32", {TALK_ELEMENTS}), math.huge
  for i = 0, TALKS do
    world:barrier()
    local from = base.now_s()
    world:all_reduce(x)
    -- the first sum allocates its memory, so it does not count
    least = i > 0 and math.min(least, base.now_s() - from) or least
  end
  x:close()
  local slowest = world:all_reduce(T.from({1}, {least}, "f64"), "max"):item()
  return slowest / (2 * (size - 1) / size * 4 * TALK_ELEMENTS)
end

-- finds the hosts of the run, and prints the slowest of the links between them
local function find_hosts(r)
  local names = r.team:texts(os.getenv "MOONREEL_HOST"
    or base.read_file("/proc/sys/kernel/hostname"):match "%S*")
  r.on_hosts = waits.hosts(names)
  local found = r.team.world and links.measure(r.team.world, names)
  if found and #found.hosts > 1 then
    local _, slowest = links.judge(found)
    r.progress:say((slowest.slow and "warning: " or "") .. links.describe(slowest))
  end
end

-- micro-steps of the busiest rank in a step
local function rounds_of(r) return -(-r.micros // r.mesh.data) end

-- Compiles the micro-step of a bucket. One that does not fit is refused, with the largest batch
-- that fits.
local function compiled(r, shape, bucket)
  local good, step = pcall(r.programs.get, r.programs, shape)
  if good then
    return step
  end
  if type(step) ~= "table" or step.code ~= "MR_E_MEMORY" then
    error(step, 0)
  end
  local takes, there, batch = r.programs:shortage(shape, (r.device:memory()))
  local field = ("bucket_config.%s.%d"):format(bucket.resolution, bucket.frames)
  blame.raise(r.settings, field, "MR_E_MEMORY", "%s: a batch of %d at %dx%d needs %s in addition "
    .. "to parameters and their state, and %s are free; %s\n  try: %s%sa device with more "
    .. "memory; moonreel plan --fit finds the batches of all buckets", field, shape.batch,
    shape.height, shape.width, progress.bytes(takes), progress.bytes(there),
    batch > 0 and "the largest that fits is " .. batch or "not even one sample fits",
    batch > 0 and "that batch, " or "",
    r.programs:choice(shape) == nil and "grad_checkpoint = true, " or "")
end

-- bytes that a rank stores and sends of the state that ranks share
local function shares_of(r)
  return r.ranks:bytes(r.exec:regions(), r.programs.op_log or "", rounds_of(r))
end

-- bytes of host memory that a save needs
local function saving_bytes(r)
  return cadence.buffer_bytes(r.settings, state.saved_bytes(r.exec, r.pipe.params, r.share))
end

-- The bytes that the micro-step of a shape may use: without those of the encoders of its batch, and
-- if the device is the host without those of a save.
local function room_of(r, shape)
  local _, encode_bytes = r.encoders:batch(shape)
  return (r.device:memory()) - encode_bytes - (r.facts.device == "cpu" and saving_bytes(r) or 0)
end

-- prints the cost of a bucket; returns a row for the journal
local function predict_bucket(r, bucket)
  local row = {bucket = ("%s %dx%dx%d"):format(bucket.resolution, bucket.frames,
    bucket.height, bucket.width), batch = bucket.batch, samples = bucket.samples}
  local shape = r.feed:shape(bucket)
  row.key = program.key(shape)
  r.unseen[bucket], row.recompute = nil, r.programs:choice(shape)
  local plan, encode_s, encode_bytes, read_s = compiled(r, shape, bucket).prog:plan(),
    r.encoders:batch(bucket)
  -- ranks that share a batch each encode a part of it, but all read the encoder's weights
  row.encode_s = encode_s / (r.mesh.group and r.mesh.group:size() or 1) + read_s
  row.peak_bytes = plan.total + r.encoders.weights + encode_bytes
  row.seconds = plan.seconds + row.encode_s
  -- memory of a GPU is not memory of the process
  row.resident_bytes = r.facts.device == "cpu" and r.apart_bytes + row.peak_bytes or nil
  r.talk_s = r.ranks and r.talk * shares_of(r).sent or 0
  local step_s = rounds_of(r) * row.seconds + r.update_s + r.talk_s
  r.measured:expect(row.key, row.bucket, step_s, row.resident_bytes)
  r.progress:say(("bucket %s: batch %d, %d samples, peak %s, about %.1f ms a step%s"):format(
    row.bucket, row.batch, row.samples, progress.bytes(row.peak_bytes), step_s * 1000,
    row.recompute ~= nil and ", recomputes " .. recompute.text(row.recompute) or ""))
  return row
end

-- Plans the encoders of a batch on the run's device.
local function plan_encoders(r)
  return r:keep(encoders.new(r.pipe, {facts = r.facts,
    rates = r.device,
    memory_bytes = (r.device:memory()), video = r.cached.latents, captions = r.cached.text,
    conditions = conditions.new(r.settings, r.pipe, {}),
    seconds = function(prog) return prog:plan().seconds end}))
end

-- the bucket with the most pixels in a batch
local function largest_of(buckets)
  local largest, most
  for _, b in ipairs(buckets) do
    local pixels = b.batch * b.frames * b.height * b.width
    if not most or pixels > most then
      largest, most = b, pixels
    end
  end
  return largest
end

--- The micro-step of a shape. For a bucket that comes for the first time it prints the cost.
---@param r table      the run
---@param shape table  from feed:shape
---@param whole table  the shape of its bucket, whose clips may be longer
---@return table  of moonreel.trainer.programs
function predict.micro_step(r, shape, whole)
  local bucket = r.bucket_of[program.key(whole)]
  if r.unseen[bucket] then
    local row = predict_bucket(r, bucket)
    row.kind, row.wall = "bucket", base.wall_s()
    r.journal:append(row)
  end
  return compiled(r, shape, bucket)
end

-- Bytes that no program counts: the process at its beginning, the needs of saves, decoded batches.
local function apart_bytes(r)
  return r.began_bytes + saving_bytes(r) + r.plan.slabs * r.plan.slab_bytes
end

-- prints what a rank stores and sends of the state that ranks share; returns it for the journal
local function tell_shares(r)
  local bytes, say = shares_of(r), progress.bytes
  r.progress:say(("ZeRO %d: a rank keeps %s of the state%s%s; it sends %s a step, in %d buckets")
    :format(r.ranks.stage, say(bytes.state),
    bytes.buckets > 0 and (", %s of gradients for a while"):format(say(bytes.buckets)) or "",
    bytes.windows > 0 and (", %s of weights"):format(say(bytes.windows)) or "", say(bytes.sent),
    #r.ranks.buckets))
  if r.talk_s > 0 then
    r.progress:say(("sending takes %.1f ms of a step, by sums that were timed now%s"):format(
      r.talk_s * 1000, r.mesh.sequence and "; communication for shared tokens is not "
      .. "counted" or ""))
  end
  bytes.stage = r.ranks.stage
  return bytes
end

-- buckets of which no other has at least as many samples in a batch and at least as many cells
local function widest(r)
  local list, kept = {}, {}
  for i, b in ipairs(r.plan.buckets) do
    local size = r.pipe.autoencoder:latent(b.frames, b.height, b.width)
    list[i] = {bucket = b, cells = b.batch * size[1] * size[2] * size[3]}
  end
  table.sort(list, function(a, b)
    if a.cells ~= b.cells then
      return a.cells > b.cells
    end
    return a.bucket.batch > b.bucket.batch
  end)
  local most = 0
  for _, one in ipairs(list) do
    if one.bucket.batch > most then
      kept[#kept + 1], most = one.bucket, one.bucket.batch
    end
  end
  return kept
end

-- Checks that the inputs of blocks of every bucket fit the host memory for them. They grow with the
-- samples and the cells of a batch, so the other buckets need no more than these.
local function check_buffers(r)
  for _, b in ipairs(r.programs.options.config.offload and widest(r) or {}) do
    program.check_buffer(r.settings, ("%s %dx%dx%d of %d"):format(b.resolution, b.frames, b.height,
      b.width, b.batch), r.programs:planned(r.feed:shape(b)))
  end
end

--- Prints the cost of each bucket, and a summary of the run.
function predict.run(r)
  local trained, all = r.pipe:counts()
  for _, note in ipairs(r.notes) do
    r.progress:say(note)
  end
  r.progress:say(("run %s: %d of %d parameters train, %s on %s (%s, %d threads)%s"):format(r.dir,
    trained, all, r.dtype,
    r.facts.device, r.facts.isa, r.facts.threads, r.team.size == 1 and ""
      or (" by %d ranks"):format(r.team.size)))
  local rows, s = {}, r.settings
  local plans = r:keep(E.plan(r.pipe.params, {regions = r.regions, facts = r.facts}))
  r.programs = programs.new(r.exec, plans, r.pipe, {most_bytes = s.programs_bytes,
    timed = s.record_time, say = function(line) r.progress:say(line) end,
    ranks = r.reported and r.ranks or nil, room = function(shape) return room_of(r, shape) end,
    choices = r.choices,
    config = program.config(s, r.reduced and r.ranks or nil, r.mesh.sequence, r.fresh,
      r.watch ~= nil)})
  r.bucket_of, r.unseen = {}, {}
  r.measured, r.update_s = measured.new(), r.update.prog:plan().seconds
  r.apart_bytes, r.encoders, r.talk = apart_bytes(r), plan_encoders(r), talk_of(r)
  if r.ranks and r.ranks.weights then
    local shapes = {}
    for i, bucket in ipairs(widest(r)) do
      shapes[i] = r.feed:shape(bucket)
    end
    r.programs:agree(shapes, r.team)
  end
  check_buffers(r)
  local largest = largest_of(r.plan.buckets)
  for i, bucket in ipairs(r.plan.buckets) do
    r.bucket_of[program.key(r.feed:shape(bucket))], r.unseen[bucket] = bucket, true
    if i <= predict.ahead or bucket == largest then
      rows[#rows + 1] = predict_bucket(r, bucket)
    end
  end
  local shares = r.ranks and tell_shares(r) or nil
  find_hosts(r)
  -- memory for reading and compiling is not memory of the steps
  base.trim()
  if #rows < #r.plan.buckets then
    r.progress:say(("%d more buckets: each is compiled when its first batch comes"):format(
      #r.plan.buckets - #rows))
  end
  for rule, rows_out in pairs(r.plan.dropped or {}) do
    if rows_out > 0 then
      r.progress:say(("left out: %d samples, %s"):format(rows_out, rule))
    end
  end
  r.progress:say(cadence.words(r.settings, state.saved_bytes(r.exec, r.pipe.params, r.share)))
  if not r.team.leads then
    return
  end
  r.journal:append{kind = "start", directory = process.real_path ".",
    step = r.step, updates = r.updates, run = r.lock:id(),
    branch = r.lock:fence(), parent = r.parent, ranks = r.team.size,
    settings = r.settings.hash, total = r.total_steps, dataset = samples.fingerprint(r),
    machine = r.machine, buckets = rows, update_s = r.update_s,
    talk_s = r.talk_s,
    hosts = r.team.size > 1 and json.array(table.move(r.on_hosts, 1, #r.on_hosts, 1, {})) or nil,
    rounds = rounds_of(r), shares = shares, bucket_size = r.bucket_size,
    began_bytes = r.began_bytes,
    trackers = tracking.reported(r.settings), wall = base.wall_s()}
end

return predict
