--- The loop of a run: steps, their lines in the journal, checkpoints, stop requests.
-- @module moonreel.trainer.loop
local base = require "moonreel.core.base"
local bench = require "moonreel.core.bench"
local cadence = require "moonreel.trainer.cadence"
local digest = require "moonreel.data.digest"
local hosts = require "moonreel.trainer.hosts"
local json = require "moonreel.core.json"
local life = require "moonreel.core.life"
local micros = require "moonreel.trainer.micros"
local processors = require "moonreel.trainer.processors"
local progress = require "moonreel.trainer.progress"
local renderings = require "moonreel.trainer.renderings"
local replicas = require "moonreel.trainer.replicas"
local saves = require "moonreel.trainer.saves"
local signal = require "moonreel.core.signal"
local spikes = require "moonreel.trainer.spikes"
local tracking = require "moonreel.trainer.tracking"
local anomalies = require "moonreel.trainer.anomalies"
local waits = require "moonreel.trainer.waits"
local weights = require "moonreel.trainer.weights"
local words = require "moonreel.runs.words"

local loop = {}

-- prints when the disk stops and begins again to accept lines of the journal, and how many were
-- lost
local function tell_journal(r)
  local waiting, reason, left_out = r.journal:waiting()
  if waiting > 0 and not r.journal_waits then
    r.progress:say(("the journal cannot be written: %s; its lines wait in memory"):format(reason))
  elseif waiting == 0 and r.journal_waits then
    r.progress:say(left_out == 0 and "the journal is written again; no line is missing"
      or ("the journal is written again; %d lines did not fit into memory and are missing")
        :format(left_out))
  end
  r.journal_waits = waiting > 0
end

-- writes to the journal, once, that the log has lost its reader
local function tell_output(r)
  if r.progress.lost and not r.output_lost then
    r.output_lost = true
    r.journal:append{kind = "output", step = r.step, wall = base.wall_s(),
      text = ("standard output has no reader any more (%s): the log is dropped"):format(
        r.progress.lost)}
  end
end

-- Do other processes want the processors on which the run computes?
local function busy(r)
  local all, wants = processors.count(), processors.wanted()
  local own = r.facts.device == "cpu" and r.facts.threads * r.team.size or r.team.size
  return wants > 1.5 * math.max(all, own) and ("%.1f processes wanted the host's %d processors")
    :format(wants, all) or nil
end

-- Writes the last line of the journal, with predictions and measurements, and waits until the
-- journal is on the disk. If that fails, a run whose checkpoint is committed does not fail.
local function end_journal(r, line)
  line.wall, line.resident_bytes, line.busy = base.wall_s(), bench.max_resident(), busy(r)
  line.buckets = json.array(r.measured:rows())
  r.journal:append(line)
  local good, problem = pcall(r.journal.sync, r.journal)
  if not good then
    r.progress:say("the end of the journal is not on the disk: " .. tostring(problem))
  end
end

local function finite(x) return x == x and x ~= math.huge and x ~= -math.huge end

-- counts the samples that could not be read so far, on all ranks; prints the first count at once
local function count_failed(r, failed)
  if failed <= r.failed then
    return
  end
  if r.unreadable == 0 then
    r.progress:say(("%d samples could not be read and count for nothing in the loss; see "
      .. "%s/quarantine.jsonl; the total is printed at the end"):format(failed, r.dir))
  end
  r.unreadable, r.failed = r.unreadable + failed - r.failed, failed
  micros.share_failures(r)
end

-- prints totals of what was printed once when it first happened
local function tell_totals(r)
  if r.unreadable > 0 then
    r.progress:say(("%d samples could not be read since the run began"):format(r.unreadable))
  end
  if r.programs.again > 0 then
    r.progress:say(("%d of %d programs were closed to save memory and then compiled again; try: a "
      .. "larger programs_bytes"):format(r.programs.again, r.programs.compiled))
  end
end

-- Enqueues the update after the micro-batches, and the inputs of the next step after the update.
-- Then it waits for the norm of the gradient; the losses are there at the same time. It adds to
-- `sum`: lr, loss, losses, norm; good: they are finite; left_out: the update was skipped as a
-- spike.
local function update(r, sum)
  -- A loss that is not finite does not reach the parameters: its gradient is not finite either, and
  -- the update then only clears the gradients.
  life.phase "optimizer"
  local o, skips, spike = r.settings.optim, r.spikes:skips(), nil
  sum.lr = r.lr_at(r.updates)
  if skips then
    sum.loss, sum.losses, sum.terms = micros.losses(r, sum)
    spike = r.spikes:of_losses(sum.losses)
  end
  local change = weights.before_update(r, sum)
  local norm = change:start{lr = sum.lr, beta1 = o.betas[1], beta2 = o.betas[2],
    eps = o.eps, weight_decay = o.weight_decay,
    max_norm = o.grad_clip, ema_decay = o.ema_decay or 0, step = r.updates + 1,
    grad_scale = sum.weight > 0 and not spike and 1 / sum.weight or 0,
    most_norm = skips and r.spikes:most_norm() or nil, muon = r.rule and r.rule.of(sum.lr),
    others = r.others and r.others(r.updates)}
  r.step = r.step + 1
  micros.send_ahead(r, sum)
  -- most of this wait is for forward and backward passes of a device that is behind
  life.phase "forward"
  local too_large
  sum.norm, too_large, sum.norms = norm()
  if not skips then
    sum.loss, sum.losses, sum.terms = micros.losses(r, sum)
  end
  sum.good = sum.weight > 0 and finite(sum.norm) and finite(sum.loss)
  sum.left_out = spike ~= nil or too_large
  r.spike = sum.good and r.spikes:add(not spike and sum.norm or nil, sum.losses) or nil
end

-- the journal's line of a step that took `seconds`
local function line_of(r, sum, seconds)
  local done = sum.good and not sum.left_out
  -- each rank had the same number of batches, all of one bucket: this is the time of a step of that
  -- bucket
  local even = not sum.mixed and sum.n == r.micros and r.micros % r.mesh.data == 0
  local line = {kind = done and "step" or "skip", step = r.step, batches = sum.n, even = even,
    epoch = sum.epoch, bucket = sum.bucket, lr = sum.lr, samples = sum.samples,
    keys = digest.of(sum.taken),
    weight = sum.weight, sources = #r.sources > 1 and sum.by_source or nil,
    data_wait_s = sum.data_wait_s, bytes = sum.bytes,
    scalars = sum.train_shift and {train_shift = sum.train_shift} or nil, time_s = seconds,
    wall = base.wall_s(),
    host_waits = r.team.size > 1 and waits.by_host(r.on_hosts, sum.waits) or nil}
  if done then
    line.loss, line.grad_norm = sum.loss / sum.weight, sum.norm
    line.t = sum.t and sum.t / sum.weight
    for k, term in ipairs(sum.terms) do
      line.scalars = line.scalars or {}
      line.scalars[r.pipe.losses.names[k]] = term / sum.weight
    end
    if r.others then
      line.scalars.discriminator_grad_norm = sum.norms[1]
    end
  else
    line.reason = sum.weight == 0 and "no sample could be used" or r.spike and spikes.text(r.spike)
      or ("loss %s, gradient norm %s"):format(sum.loss, sum.norm)
  end
  return line
end

-- prints what a step did, and the state of its GPU
local function tell_step(r, line)
  if line.kind == "skip" then
    r.progress:say(("step %d skipped: %s"):format(r.step, line.reason))
  else
    r.last_loss = line.loss
    if line.even then
      r.measured:add(line.bucket, line.time_s - line.data_wait_s, bench.max_resident())
    end
    r.progress:step(line)
  end
  if r.gpu then
    local reported
    line.gpu, reported = r.gpu:look()
    if reported then
      r.progress:say(reported)
    end
  end
  r.journal:append(line)
end

-- shows the state between two steps to the `watch` of the run
local function show_state(r)
  if r.watch then
    r.watch(r.step, 0, nil, r.programs:list()[1])
  end
end

--- One optimizer step: micro-batches forward and backward, then the update.
---@param r table
---@return boolean  false after the last epoch
function loop.step(r)
  local started = base.now_s()
  life.step(r.step + 1)
  local sum = micros.run(r)
  if sum.n == 0 then
    return false
  end
  count_failed(r, sum.failed)
  r.sampler, r.epoch_ends = r.loader:state(), sum.last
  update(r, sum)
  anomalies.remember(r, sum.taken)
  r.updates = r.updates + (sum.good and not sum.left_out and 1 or 0)
  r.bad = (sum.good or sum.weight == 0) and 0 or r.bad + 1
  tell_step(r, line_of(r, sum, base.now_s() - started))
  show_state(r)
  return true
end

-- prints seconds per op of the last step; writes its trace for chrome://tracing and Perfetto
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
    -- a bucket that never ran has no times
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

-- runs steps until the run's count or the last epoch; returns the signal of an earlier stop request
local function steps(r)
  local s = r.settings
  while s.steps == 0 or r.step < s.steps do
    if not loop.step(r) then
      return nil
    end
    weights.look(r)
    anomalies.check(r)
    replicas.check(r)
    saves.tell(r)
    tell_journal(r)
    tell_output(r)
    hosts.look(r)
    tracking.look(r)
    -- between bad steps nothing is saved, because the run may go back
    if cadence.due(r) and r.bad == 0 then
      saves.between(r)
      renderings.between(r, saves.commit)
    end
    renderings.look(r)
    local stop = r.stop or r.team.size == 1 and signal.pending()
    if stop then
      return stop
    end
  end
end

--- Steps until the run's count, the last epoch, or a stop request.
---@return integer exit code: 0, or 128 + signal after a committed checkpoint
function loop.run(r)
  local s = r.settings
  r.failed, r.unreadable, r.started, r.saved_s = 0, 0, true, base.now_s()
  show_state(r)
  -- the last save may take the run back
  repeat
    local stop, reached = steps(r), r.step
    if stop then
      r.progress:say(("stop requested: saving step %d; a second signal stops at once"):format(
        r.step))
      saves.commit(r)
      tell_totals(r)
      renderings.stop(r)
      end_journal(r, {kind = "stop", signal = stop, step = r.step,
        renderings = renderings.took(r)})
      return 128 + stop
    end
    -- a run without anything to do saves what it started from, so that the next stage finds it
    if r.sampler or not r.continues then
      r.sampler = r.sampler or r.loader:state()
      saves.commit(r)
    end
  until r.step == reached
  renderings.finish(r)
  tell_totals(r)
  if s.record_time and r.team.leads then
    tell_times(r)
  end
  local why = busy(r)
  for _, reported in ipairs(r.measured:lines(why)) do
    r.progress:say(reported)
  end
  local rendered, line = renderings.took(r, why)
  if line then
    r.progress:say(line)
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
    waits = d.waits, wait_s = d.wait_s, bytes = d.bytes},
    renderings = rendered})
  r.progress:say(d.hits + d.waits == 0 and words.complete(r.step, r.stage
    and r.stage.outer or r.dir, r.stage and r.stage.name)
    or ("done: step %d, %s, %s"):format(r.step, r.last_loss
      and ("loss %.4f"):format(r.last_loss) or "no step had a loss", r.dir))
  return 0
end

return loop
