--- The loop of a run: micro-steps, update, journal, checkpoints, stop requests.
-- @module moonreel.trainer.loop
local base = require "moonreel.core.base"
local predict = require "moonreel.trainer.predict"
local program = require "moonreel.trainer.program"
local progress = require "moonreel.trainer.progress"
local signal = require "moonreel.core.signal"
local state = require "moonreel.trainer.state"

local loop = {}

local BAD_STEPS_MAX = 3
local SAVE_DEADLINE_S = 600

-- the compiled micro-step of a shape, built once
local function micro_step(r, shape)
  local key = program.key(shape)
  local found = r.programs[key]
  if not found then
    local s = r.settings
    found = program.new(r.exec, r.pipe, shape, {grad_checkpoint = s.grad_checkpoint, grad_ckpt_settings = s:plain("grad_ckpt_settings")})
    r.programs[key] = found
  end
  return found
end

--- Say what each bucket will cost, and what the run is.
function loop.predict(r)
  local trained, all = r.pipe:counts()
  for _, note in ipairs(r.notes) do r.progress:say(note) end
  r.progress:say(("run %s: %d of %d parameters train, %s on %s (%s, %d threads)"):format(r.dir, trained, all, r.dtype,
    r.facts.device, r.facts.isa, r.facts.threads))
  local speeds, rows = predict.speeds(r.device, r.dtype), {}
  for _, bucket in ipairs(r.plan.buckets) do
    local prog = micro_step(r, r.feed:shape(bucket)).prog
    local row = {bucket = ("%s %dx%dx%d"):format(bucket.resolution, bucket.frames, bucket.height, bucket.width), batch = bucket.batch,
      samples = bucket.samples, peak_bytes = predict.peak(prog), seconds = predict.seconds(prog, speeds)}
    rows[#rows + 1] = row
    r.progress:say(("bucket %s: batch %d, %d samples, peak %s, about %.1f ms a step"):format(row.bucket, row.batch, row.samples,
      progress.bytes(row.peak_bytes), row.seconds * 1000))
  end
  for rule, rows_out in pairs(r.plan.dropped or {}) do
    if rows_out > 0 then r.progress:say(("left out: %d samples, %s"):format(rows_out, rule)) end
  end
  r.journal:append{kind = "start", step = r.step, updates = r.updates, run = r.lock:id(), branch = r.lock:fence(), parent = r.parent,
    settings = r.settings.hash, machine = r.machine, buckets = rows, wall = base.wall_s()}
end

-- ---- checkpoints -----------------------------------------------------------------------------------

-- put what happened to saves into journal and log
local function tell_saves(r)
  local event = r.saver:poll()
  while event do
    r.journal:append{kind = "save", event = event.kind, step = event.step, bytes = event.bytes, copy_s = event.copy_s,
      write_s = event.write_s, text = event.text, wall = base.wall_s()}
    if event.kind ~= "commit" then r.progress:say(("save of step %d: %s: %s"):format(event.step, event.kind, event.text)) end
    event = r.saver:poll()
  end
end

--- Snapshot of everything; `wait` returns only when it is committed.
function loop.save(r, wait)
  if r.saved_step == r.step then
    if wait then r.saver:wait(SAVE_DEADLINE_S) end
    return
  end
  local rows, keep = state.rows(r.exec, r.pipe.params, r.dtype)
  r.saver:save{step = r.step, tensors = rows, wait = wait, meta = {
    recipe_hash = r.settings.hash, dataset_fingerprint = r.index.meta.fp_order, sampler = r.sampler, seed = r.settings.seed,
    machine = r.machine, settings = r.settings:to_json(), name = r.name, dtype = r.dtype, parent = r.parent,
    run_state = {step = r.step, updates = r.updates}}}
  r.saved_step = r.step
  keep = nil  -- luacheck: ignore
  if wait then r.saver:wait(SAVE_DEADLINE_S) end
  tell_saves(r)
end

-- ---- one step ----------------------------------------------------------------------------------------

local function finite(x) return x == x and x ~= math.huge and x ~= -math.huge end

-- the next batch; a limit of bad samples is raised after a checkpoint
local function next_batch(r)
  local ok, batch = pcall(r.loader.next, r.loader)
  if ok then return batch end
  if r.sampler and r.step > 0 then loop.save(r, true) end
  error(batch, 0)
end

--- Train on one batch: forward, backward, update. Returns false after the last epoch.
function loop.step(r)
  local started = base.now_s()
  local batch = next_batch(r)
  if not batch then return false end
  local waited = base.now_s() - started
  local shape = r.feed:shape{frames = batch.frames, height = batch.height, width = batch.width, batch = batch.size}
  local micro = micro_step(r, shape)
  local input = r.feed:prepare(batch, shape)
  local weight, t_sum = 0, 0
  for b, w in ipairs(input.weight) do weight, t_sum = weight + w, t_sum + w * input.t[b] end
  local sum = micro:run(input)
  local bytes = select(2, batch:pixels())
  r.loader:release(batch)
  r.sampler = r.loader:state()

  -- a loss that is not finite must not reach the parameters: the update then only clears the gradients
  local o = r.settings.optim
  local usable = weight > 0 and finite(sum)
  local lr = r.lr_at(r.updates)
  local norm = r.update:step{lr = lr, beta1 = o.betas[1], beta2 = o.betas[2], eps = o.eps, weight_decay = o.weight_decay,
    max_norm = o.grad_clip, ema_decay = o.ema_decay or 0, step = r.updates + 1, grad_scale = usable and 1 / weight or 0}
  r.step = r.step + 1
  local good = usable and finite(norm)
  if good then r.updates = r.updates + 1 end
  r.bad = (good or weight == 0) and 0 or (r.bad or 0) + 1

  local time_s = base.now_s() - started
  local line = {kind = "step", step = r.step, epoch = batch.epoch, loss = weight > 0 and sum / weight or nil, grad_norm = norm, lr = lr,
    t = weight > 0 and t_sum / weight or nil, bucket = micro.key, samples = batch.n, weight = weight, data_wait_s = waited, bytes = bytes,
    time_s = time_s, wall = base.wall_s()}
  if not good then
    line.kind, line.reason = "skip", weight == 0 and "no good sample" or "not finite"
    line.loss, line.grad_norm, line.t, line.text = nil, nil, nil, ("loss %s, gradient norm %s"):format(sum, norm)
  end
  r.journal:append(line)
  if good then
    r.progress:step(line)
  else
    r.progress:say(("step %d skipped: %s (%s)"):format(r.step, line.reason, line.text))
  end
  r.last_loss = good and line.loss or r.last_loss
  return true
end

--- Stop on what cannot go on.
local function check_bad(r)
  if r.bad < BAD_STEPS_MAX then return end
  loop.save(r, true)
  base.raise("MR_E_NONFINITE", ("step %d: %d steps in a row without a finite loss and gradient; parameters are those of step %d\n"
    .. "  try: a smaller lr, grad_clip = 1, dtype = \"fp32\""):format(r.step, r.bad, r.step - r.bad))
end

--- Steps until the run's count, the last epoch, or a stop request.
---@return integer exit code: 0, or 128 + signal after a committed checkpoint
function loop.run(r)
  local s = r.settings
  r.bad = 0
  while s.steps == 0 or r.step < s.steps do
    if not loop.step(r) then break end
    check_bad(r)
    tell_saves(r)
    if s.ckpt_every > 0 and r.step % s.ckpt_every == 0 then
      loop.save(r, false)
      r.saver:check()
    end
    local stop = signal.pending()
    if stop then
      r.progress:say(("stop requested: saving step %d; a second signal stops at once"):format(r.step))
      loop.save(r, true)
      r.journal:append{kind = "stop", signal = stop, step = r.step, wall = base.wall_s()}
      return 128 + stop
    end
  end
  if r.sampler then loop.save(r, true) end
  r.journal:append{kind = "end", step = r.step, loss = r.last_loss, wall = base.wall_s()}
  r.progress:say(("done: step %d, loss %s, %s"):format(r.step, r.last_loss and ("%.4f"):format(r.last_loss) or "-", r.dir))
  return 0
end

return loop
