--- The loop of a run: micro-steps, update, journal, checkpoints, stop requests.
-- @module moonreel.trainer.loop
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local bench = require "moonreel.core.bench"
local blame = require "moonreel.settings.blame"
local encoders = require "moonreel.trainer.encoders"
local json = require "moonreel.core.json"
local life = require "moonreel.core.life"
local program = require "moonreel.trainer.program"
local programs = require "moonreel.trainer.programs"
local progress = require "moonreel.trainer.progress"
local replicas = require "moonreel.trainer.replicas"
local rflow = require "moonreel.diffusion.rflow"
local saves = require "moonreel.trainer.saves"
local signal = require "moonreel.core.signal"
local spikes = require "moonreel.trainer.spikes"
local state = require "moonreel.trainer.state"
local trouble = require "moonreel.trainer.trouble"
local truth = require "moonreel.trainer.truth"

local loop = {}

local UNREAD_MAX = 32 -- losses on their way; an executor keeps twice as many results

--- How many buckets have their micro-steps compiled before the first step, and the largest one, so
-- that a run which does not fit ends there. The others' are when their first batch comes: shapes of
-- later do not hold up the beginning.
loop.ahead = 8

-- micro-steps of the busiest rank in a step
local function rounds_of(r) return -(-r.micros // r.mesh.data) end

-- the micro-step of a bucket; one that does not fit is told with what would
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
  blame.raise(r.settings, field, "MR_E_MEMORY", "%s: a batch of %d at %dx%d takes %s beside "
    .. "parameters and their state, %s are free for it; %s\n  try: %sgrad_checkpoint = true, a "
    .. "device with more memory; moonreel plan --fit solves all batches", field, shape.batch,
    shape.height, shape.width, progress.bytes(takes), progress.bytes(there),
    batch > 0 and "the largest that fits is " .. batch or "not even one sample fits",
    batch > 0 and "that batch, " or "")
end

-- say what a bucket takes; returns a row for the journal
local function predict_bucket(r, bucket)
  local row = {bucket = ("%s %dx%dx%d"):format(bucket.resolution, bucket.frames,
    bucket.height, bucket.width), batch = bucket.batch, samples = bucket.samples}
  local shape = r.feed:shape(bucket)
  row.key = program.key(shape)
  r.unseen[bucket] = nil
  local plan, encode_s, encode_bytes = compiled(r, shape, bucket).prog:plan(),
    r.encoders:batch(bucket)
  -- ranks that share a batch encode a part of it each
  row.encode_s = encode_s / (r.mesh.sequence and r.mesh.sequence.size or 1)
  row.peak_bytes = plan.total + r.encoders.weights + encode_bytes
  row.seconds = plan.seconds + row.encode_s
  -- the memory of a GPU is not that of the process
  row.resident_bytes = r.facts.device == "cpu" and r.apart_bytes + row.peak_bytes or nil
  local step_s = rounds_of(r) * row.seconds + r.update_s
  r.truth:expect(row.key, row.bucket, step_s, row.resident_bytes)
  r.progress:say(("bucket %s: batch %d, %d samples, peak %s, about %.1f ms a step"):format(
    row.bucket, row.batch, row.samples, progress.bytes(row.peak_bytes), step_s * 1000))
  return row
end

-- what encodes a batch beside the step, planned on the run's device, which is probed where there is
-- such a thing
local function plan_encoders(r)
  local rates, apart = {}, r.codec or r.pipe.text.apart and not r.cached.text
  for _, dtype in ipairs(apart and {"f32", "bf16"} or {}) do
    rates[dtype] = r.device:rates(dtype)
  end
  return r:keep(encoders.new(r.pipe, {facts = r.facts, rates = rates,
    memory_bytes = (r.device:memory()), video = r.cached.latents, captions = r.cached.text,
    seconds = function(prog) return prog:plan().seconds end}))
end

-- the bucket with most pixels in a batch
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

-- the micro-step of a shape; of a bucket that comes for the first time this says what it takes
local function micro_step(r, shape)
  local bucket = r.bucket_of[program.key(shape)]
  if r.unseen[bucket] then
    local row = predict_bucket(r, bucket)
    row.kind, row.wall = "bucket", base.wall_s()
    r.journal:append(row)
  end
  return compiled(r, shape, bucket)
end

-- Bytes that no program knows of: the process as it began, snapshots, decoded batches. Without
-- saves on the way the only snapshot is made when all steps are over.
local function apart_bytes(r)
  local saved = state.saved_bytes(r.exec, r.share)
  return r.began_bytes + saved * (r.settings.ckpt_every > 0 and 2 or 0)
    + r.plan.slabs * r.plan.slab_bytes
end

-- say what a rank holds and sends of the state that ranks share; returns it for the journal
local function tell_shares(r)
  local bytes, say = r.ranks:bytes(r.exec:regions(), r.programs.story or "", rounds_of(r)),
    progress.bytes
  r.progress:say(("ZeRO %d: a rank keeps %s of the state%s%s; it sends %s a step, in %d buckets")
    :format(r.ranks.stage, say(bytes.state),
    bytes.buckets > 0 and (", %s of gradients for a while"):format(say(bytes.buckets)) or "",
    bytes.windows > 0 and (", %s of weights"):format(say(bytes.windows)) or "", say(bytes.sent),
    #r.ranks.buckets))
  bytes.stage = r.ranks.stage
  return bytes
end

--- Say what each bucket will cost, and what the run is.
function loop.predict(r)
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
    ranks = r.told and r.ranks or nil,
    config = program.config(s, r.reduced and r.ranks or nil, r.mesh.sequence)})
  r.bucket_of, r.unseen = {}, {}
  r.truth, r.update_s = truth.new(), r.update.prog:plan().seconds
  r.apart_bytes, r.encoders = apart_bytes(r), plan_encoders(r)
  local largest = largest_of(r.plan.buckets)
  for i, bucket in ipairs(r.plan.buckets) do
    r.bucket_of[program.key(r.feed:shape(bucket))], r.unseen[bucket] = bucket, true
    if i <= loop.ahead or bucket == largest then
      rows[#rows + 1] = predict_bucket(r, bucket)
    end
  end
  local shares = r.ranks and tell_shares(r) or nil
  -- what was read and compiled on the way here is no part of what steps need
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
  if not r.team.leads then
    return
  end
  r.journal:append{kind = "start", step = r.step, updates = r.updates, run = r.lock:id(),
    branch = r.lock:fence(), parent = r.parent, ranks = r.team.size,
    settings = r.settings.hash, machine = r.machine, buckets = rows, update_s = r.update_s,
    rounds = rounds_of(r), shares = shares, began_bytes = r.began_bytes, wall = base.wall_s()}
end

-- all ranks leave out the same samples from the next epoch on
local function share_failures(r)
  if r.team.size == 1 then
    return
  end
  local texts = r.team:texts(r.loader:failures())
  texts[r.team.rank + 1] = ""
  r.loader:agree(table.concat(texts))
end

-- say when the disk stops and begins again to take the journal's lines, and what was left out
local function tell_journal(r)
  local waiting, reason, left_out = r.journal:waiting()
  if waiting > 0 and not r.journal_waits then
    r.progress:say(("the journal cannot be written: %s; its lines wait in memory"):format(reason))
  elseif waiting == 0 and r.journal_waits then
    r.progress:say(left_out == 0 and "the journal is written again, no line is missing"
      or ("the journal is written again; %d lines did not fit into memory and are missing")
        :format(left_out))
  end
  r.journal_waits = waiting > 0
end

-- the last line of the journal, with what was predicted and measured, and all before it, on the
-- disk; a run whose checkpoint is committed does not fail by it
local function end_journal(r, line)
  line.wall, line.resident_bytes = base.wall_s(), bench.max_resident()
  line.buckets = json.array(r.truth:rows())
  r.journal:append(line)
  local good, problem = pcall(r.journal.sync, r.journal)
  if not good then
    r.progress:say("the end of the journal is not on the disk: " .. tostring(problem))
  end
end

-- ---- one step ----

local function finite(x) return x == x and x ~= math.huge and x ~= -math.huge end

-- What ranks tell each other in a step, sums of all, and `by_rank` what each has told: `numbers` of
-- this one, or that its data ended by an error, which is raised on all of them after a checkpoint.
local function meet(r, numbers, problem)
  local told = table.move(numbers, 1, #numbers, 3, {problem and 1 or 0, signal.pending() or 0})
  life.phase "reduce"
  local sums = {by_rank = r.team:all(told)}
  for rank, row in ipairs(sums.by_rank) do
    if row[1] > 0 then
      sums.failed = sums.failed or rank - 1
    end
    r.stop = r.stop or row[2] > 0 and math.tointeger(row[2]) or nil
    for i = 3, #row do
      sums[i - 2] = (sums[i - 2] or 0) + row[i]
    end
  end
  if not sums.failed then
    return sums
  end
  if r.sampler and r.step > 0 then
    saves.commit(r)
  end
  r.team:try(function()
    if problem then
      error(problem, 0)
    end
  end)
end

-- ranks tell as many numbers in every meeting of a step
local NOTHING <const> = {0, 0, 0, 0, 0}

-- take the losses that came back, until `left` are on their way
local function collect(sum, left)
  while #sum.losses > left do
    local one = table.remove(sum.losses, 1)
    one.told.loss = one.fetched:get():item()
  end
end

-- The losses of all micro-batches of a step, known to all ranks: their sum, added rank by rank so
-- that it is the same everywhere, and in the order of the step the mean loss of each and its group.
local function share_losses(r, sum)
  collect(sum, 0)
  local flat, counts, losses, total = {}, {}, {}, 0
  for i, one in ipairs(r.mesh.leads and sum.own or {}) do
    table.move({one.number, one.level, one.weight, one.loss}, 1, 4, 4 * i - 3, flat)
  end
  for rank, row in ipairs(sum.all.by_rank) do
    counts[rank] = math.tointeger(row[#row])
  end
  for _, list in ipairs(r.team:lists(flat, counts, 4)) do
    local own = 0
    for i = 1, #list, 4 do
      local number, level, weight, loss = table.unpack(list, i, i + 3)
      own = own + loss
      -- one whose samples could not be read has no loss
      if weight > 0 then
        local group = ("%s, noise %d of %d"):format(sum.taken[number].name, level + 1,
          spikes.LEVELS)
        losses[#losses + 1] = {number = number, group = group, loss = loss / weight}
      end
    end
    total = total + own
  end
  table.sort(losses, function(a, b) return a.number < b.number end)
  return total, losses
end

-- the next batch of the loader, which may fail: {ok, batch or problem}
local function draw(r, sum)
  local started = base.now_s()
  life.phase "load"
  local next = table.pack(pcall(r.loader.next, r.loader))
  sum.data_wait_s = sum.data_wait_s + base.now_s() - started
  return next
end

-- a batch of this rank with its micro-step, whose inputs are on their way to the device
local function send(r, next)
  local batch = next[2]
  local shape = r.feed:shape{frames = batch.frames, height = batch.height,
    width = batch.width, batch = batch.size}
  local micro = micro_step(r, shape)
  local input = r.feed:prepare(batch, shape)
  micro:stage(input)
  next.micro, next.input = micro, input
end

-- Draw and send the first batch of the step to come while this one's runs end. Not beyond the last
-- step, nor into another epoch, which leaves out what could not be read in this one; ranks go over
-- their batches together. What fails here fails again where the batch is used.
local function send_ahead(r, sum)
  local s = r.settings
  if r.team.size > 1 or sum.last or (s.steps > 0 and r.step >= s.steps) or signal.pending() then
    return
  end
  r.ahead = draw(r, sum)
  if r.ahead[1] and r.ahead[2] then
    pcall(send, r, r.ahead)
  end
end

-- what a micro-batch of this rank adds to the facts of a step
local function count(r, sum, next)
  if not next.input then
    send(r, next)
  end
  local input = next.input
  -- of ranks that share a batch one counts it
  local counts, weight, t = r.mesh.leads and 1 or 0, 0, 0
  for b, w in ipairs(input.weight) do
    sum.weight, weight = sum.weight + counts * w, weight + w
    -- an autoencoder has no times
    sum.t = input.t and (sum.t or 0) + counts * w * input.t[b]
    t = t + w * (input.t and input.t[b] or 0)
  end
  sum.bytes = sum.bytes + counts * select(2, next[2]:pixels())
  next.told = {number = next.number, weight = weight,
    level = spikes.level(weight > 0 and t / weight or 0, rflow.T)}
  sum.own[#sum.own + 1], sum.bucket = next.told, next.micro.key
end

-- begin its forward and backward, added into the gradients; its batch is the loader's again
local function start(r, sum, next)
  life.phase "forward"
  sum.losses[#sum.losses + 1] = {fetched = next.micro:start(next.input), told = next.told}
  collect(sum, UNREAD_MAX)
  r.loader:release(next[2])
end

-- what all ranks know of a step so far
local function meet_over(r, sum)
  sum.all = meet(r, {sum.weight, sum.t or 0, sum.bytes, r.loader:stats().failed,
    r.mesh.leads and #sum.own or 0})
end

-- Micro-batches in which ranks tell each other something, one of each rank at most: all begin them
-- together, when all have theirs; who has none tells what the others do.
local function micro_batches_told(r, sum, mine)
  if mine then
    count(r, sum, mine)
  end
  meet_over(r, sum)
  if mine then
    start(r, sum, mine)
  else
    life.phase "forward"
    r.programs:idle()
  end
end

-- were all micro-batches so far of one bucket?
local function note_shape(sum, batch)
  local shape = ("%dx%dx%d b%d"):format(batch.frames, batch.height, batch.width, batch.size)
  sum.shape = sum.shape or shape
  sum.mixed = sum.mixed or sum.shape ~= shape
end

-- To be closed when a part of a step is over that changes nothing of the state: when ranks have
-- lost each other in it, what one of them holds is still that of the step before.
local function unchanged(r)
  return setmetatable({}, {__close = function(_, problem)
    if type(problem) == "table" and problem.code == "MR_E_NODE" then
      saves.alone(r)
    end
  end})
end

-- the micro-batches of a step: every rank goes over all of them and does its own
local function micro_batches(r, sum)
  local _ <close> = unchanged(r)
  local mine, open = nil, 0
  for _ = 1, r.micros do
    local next = r.ahead or draw(r, sum)
    local batch = next[2]
    r.ahead = nil
    if not next[1] then
      meet(r, NOTHING, batch)
    elseif not batch then
      break
    end
    sum.last, open = batch.last, open + 1
    note_shape(sum, batch)
    sum.n, sum.samples, sum.epoch = sum.n + 1, sum.samples + batch.n, batch.epoch
    local source = r.sources[batch.source].name
    sum.by_source[source] = (sum.by_source[source] or 0) + batch.n
    next.number = sum.n
    sum.taken[sum.n] = {name = ("%s of %d frames"):format(batch.resolution, batch.frames),
      source = source, ids = batch.ids, n = batch.n}
    if batch.other then
      r.loader:release(batch)
    elseif r.told then
      mine = next
    else
      count(r, sum, next)
      start(r, sum, next)
    end
    if batch.last and r.team.size > 1 then
      meet(r, NOTHING)
      share_failures(r)
    end
    if r.told and open == r.mesh.data then
      micro_batches_told(r, sum, mine)
      mine, open = nil, 0
    end
  end
  if r.told and open > 0 then
    micro_batches_told(r, sum, mine)
  elseif not r.told and sum.n > 0 then
    meet_over(r, sum)
  end
end

-- tell how many samples could not be read so far, on all ranks
local function tell_failed(r, failed)
  if failed <= r.failed then
    return
  end
  r.progress:say(
    ("%d samples could not be read, they weigh nothing; see %s/quarantine.jsonl"):format(
    failed - r.failed, r.dir))
  r.failed = failed
  share_failures(r)
end

--- One optimizer step: micro-batches forward and backward, then the update. They are enqueued one
-- behind the other, and behind them the inputs of the next step; then the norm of the gradient is
-- waited for, and with it the losses are there.
-- Returns false after the last epoch.
function loop.step(r)
  local started, s = base.now_s(), r.settings
  local sum = {losses = {}, weight = 0, bytes = 0, samples = 0, n = 0, own = {}, taken = {},
    data_wait_s = 0, by_source = {}}
  life.step(r.step + 1)
  micro_batches(r, sum)
  if sum.n == 0 then
    return false
  end
  local all = sum.all
  sum.weight, sum.t, sum.bytes = all[1], sum.t and all[2], all[3]
  tell_failed(r, math.tointeger(all[4]))
  r.sampler = r.loader:state()

  -- a loss that is not finite does not reach the parameters: no gradient of it is finite, and the
  -- update then only clears the gradients
  life.phase "optimizer"
  local o, weight = s.optim, sum.weight
  local lr = r.lr_at(r.updates)
  local skips, loss, losses, spike = r.spikes:skips(), nil, nil, nil
  if skips then
    loss, losses = share_losses(r, sum)
    spike = r.spikes:of_losses(losses)
  end
  local norm = r.update:start{lr = lr, beta1 = o.betas[1], beta2 = o.betas[2],
    eps = o.eps, weight_decay = o.weight_decay,
    max_norm = o.grad_clip, ema_decay = o.ema_decay or 0, step = r.updates + 1,
      grad_scale = weight > 0 and not spike and 1 / weight or 0,
    most_norm = skips and r.spikes:most_norm() or nil}
  r.step = r.step + 1
  send_ahead(r, sum)
  -- what is waited for is most of all forward and backward of a device that runs behind
  life.phase "forward"
  local too_large
  norm, too_large = norm()
  if not skips then
    loss, losses = share_losses(r, sum)
  end
  local good = weight > 0 and finite(norm) and finite(loss)
  local left_out = spike ~= nil or too_large
  r.spike = good and r.spikes:add(not spike and norm or nil, losses) or nil
  trouble.remember(r, sum.taken)
  if good and not left_out then
    r.updates = r.updates + 1
  end
  r.bad = (good or weight == 0) and 0 or r.bad + 1

  -- every rank had as many batches, all of one bucket: this is what a step of that bucket takes
  local even = not sum.mixed and sum.n == r.micros and r.micros % r.mesh.data == 0
  local line = {step = r.step, batches = sum.n, even = even, epoch = sum.epoch,
    bucket = sum.bucket, lr = lr,
    samples = sum.samples, weight = weight,
    sources = #r.sources > 1 and sum.by_source or nil,
    data_wait_s = sum.data_wait_s, bytes = sum.bytes, time_s = base.now_s() - started,
      wall = base.wall_s()}
  if good and not left_out then
    line.kind, line.loss, line.grad_norm = "step", loss / weight, norm
    line.t = sum.t and sum.t / weight
    r.last_loss = line.loss
    if even then
      r.truth:add(sum.bucket, line.time_s - line.data_wait_s, bench.max_resident())
    end
    r.progress:step(line)
  else
    line.kind, line.reason = "skip", weight == 0 and "no good sample" or r.spike
      and spikes.text(r.spike) or ("loss %s, gradient norm %s"):format(loss, norm)
    r.progress:say(("step %d skipped: %s"):format(r.step, line.reason))
  end
  if r.gpu then
    local told
    line.gpu, told = r.gpu:look()
    if told then
      r.progress:say(told)
    end
  end
  r.journal:append(line)
  return true
end

-- seconds per op of the last step, and its trace for chrome://tracing and Perfetto
local function tell_times(r)
  for _, micro in ipairs(r.programs:list()) do
    local by_op, list, total = {}, {}, 0
    for _, row in ipairs(micro.prog:times()) do
      local op = by_op[row.op]
      if not op then
        op = {name = row.op, n = 0, seconds = 0, flop = 0, bytes = 0}
        by_op[row.op], list[#list + 1] = op, op
      end
      op.n, op.seconds, op.flop, op.bytes = op.n + 1, op.seconds + row.seconds,
        op.flop + row.flop, op.bytes + row.bytes
      total = total + row.seconds
    end
    -- a bucket that was never run has no times
    if total > 0 then
      table.sort(list, function(a, b) return a.seconds > b.seconds end)
      r.progress:say(("times of %s: %.2f ms"):format(micro.key, total * 1000))
      for _, op in ipairs(list) do
        r.progress:say(("  %-26s %4d  %8.3f ms %5.1f %%  %7.2f GFLOP/s %7.2f GB/s"):format(op.name,
          op.n, op.seconds * 1000,
          100 * op.seconds / total, op.flop / op.seconds * 1e-9, op.bytes / op.seconds * 1e-9))
      end
      micro.prog:trace(("%s/log/trace-%s.json"):format(r.dir, micro.key:gsub("%W", "-")))
    end
  end
end

--- Steps until the run's count, the last epoch, or a stop request.
---@return integer exit code: 0, or 128 + signal after a committed checkpoint
function loop.run(r)
  local s = r.settings
  r.failed, r.started = 0, true
  while s.steps == 0 or r.step < s.steps do
    if not loop.step(r) then
      break
    end
    trouble.check(r)
    replicas.check(r)
    saves.tell(r)
    tell_journal(r)
    -- what a run goes back to is not saved between bad steps
    if s.ckpt_every > 0 and r.step % s.ckpt_every == 0 and r.bad == 0 then
      r.team:try(function()
        saves.take(r)
        r.saver:check()
      end)
    end
    local stop = r.stop or r.team.size == 1 and signal.pending()
    if stop then
      r.progress:say(("stop requested: saving step %d; a second signal stops at once"):format(
        r.step))
      saves.commit(r)
      end_journal(r, {kind = "stop", signal = stop, step = r.step})
      return 128 + stop
    end
  end
  -- a run that had nothing to do leaves what it started from, so that a stage after it finds that
  if r.sampler or not r.continues then
    r.sampler = r.sampler or r.loader:state()
    saves.commit(r)
  end
  if s.record_time and r.team.leads then
    tell_times(r)
  end
  for _, told in ipairs(r.truth:lines()) do
    r.progress:say(told)
  end
  local d = r.loader:stats()
  for _, source in ipairs(#r.sources > 1 and d.sources or {}) do
    r.progress:say(("source %s: %d samples since the run began, epoch %d of %d rows"):format(
      source.name, source.delivered, source.epoch, source.rows))
  end
  r.progress:say(("data: %d of %d batches were ready when asked for, %.1f s waited, %s of pixels "
    .. "in %d slabs of %s"):format(d.hits, d.hits + d.waits, d.wait_s, progress.bytes(d.bytes),
    r.plan.slabs, progress.bytes(r.plan.slab_bytes)))
  end_journal(r, {kind = "end", step = r.step, loss = r.last_loss, data = {hits = d.hits,
    waits = d.waits, wait_s = d.wait_s, bytes = d.bytes}})
  r.progress:say(("done: step %d, loss %s, %s"):format(r.step, r.last_loss
    and ("%.4f"):format(r.last_loss) or "-", r.dir))
  return 0
end

return loop
