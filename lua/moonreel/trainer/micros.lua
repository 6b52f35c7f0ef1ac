--- The micro-batches of a step: drawn, sent, started, and the communication of ranks about them.
-- @module moonreel.trainer.micros
local base = require "moonreel.core.base"
local cadence = require "moonreel.trainer.cadence"
local flow = require "moonreel.diffusion.flow"
local life = require "moonreel.core.life"
local predict = require "moonreel.trainer.predict"
local saves = require "moonreel.trainer.saves"
local signal = require "moonreel.core.signal"
local spikes = require "moonreel.trainer.spikes"
local waits = require "moonreel.trainer.waits"

local micros = {}

local UNREAD_MAX = 32 -- losses that were not fetched yet; an executor keeps twice as many results

--- Makes all ranks leave out the same samples from the next epoch on.
function micros.share_failures(r)
  if r.team.size == 1 then
    return
  end
  local texts = r.team:texts(r.loader:failures())
  texts[r.team.rank + 1] = ""
  r.loader:agree(table.concat(texts))
end

local HEAD <const> = 5 -- numbers of a message in front of those of the micro-batches

-- Sums `numbers` of all ranks; `by_rank` gets what each has sent. A rank whose data ended with an
-- error sends that instead; then all ranks raise the error after a checkpoint.
local function meet(r, sum, numbers, problem)
  local reported = table.move(numbers, 1, #numbers, HEAD + 1, {problem and 1 or 0,
    signal.pending() or 0, cadence.late(r) and 1 or 0, base.now_s() - sum.met_s, sum.data_wait_s})
  life.phase "reduce"
  local sums = {by_rank = r.team:all(reported)}
  sum.met_s = base.now_s()
  local busy_s, data_s = {}, {}
  for rank, row in ipairs(sums.by_rank) do
    busy_s[rank], data_s[rank] = row[4], row[5]
    if row[1] > 0 then
      sums.failed = sums.failed or rank - 1
    end
    r.stop = r.stop or row[2] > 0 and math.tointeger(row[2]) or nil
    r.late = r.late or row[3] > 0
    for i = HEAD + 1, #row do
      sums[i - HEAD] = (sums[i - HEAD] or 0) + row[i]
    end
  end
  waits.count(sum.waits, data_s, busy_s)
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

-- every message of a step has the same length
local NOTHING <const> = {0, 0, 0, 0, 0}

-- splits a loss from the terms after it
local function split(fetched)
  local values = fetched:reshape{-1}:totable()
  return values[1], {table.unpack(values, 2)}
end

-- fetches the losses that are ready, until `left` are missing
local function collect(sum, left)
  while #sum.losses > left do
    local one = table.remove(sum.losses, 1)
    one.reported.loss, one.reported.terms = split(one.fetched:get())
  end
end

--- The losses of all micro-batches of a step, known to all ranks.
---@param r table
---@param sum table  from micros.run
---@return number total  their sum, added rank by rank so that all ranks get the same bits
---@return table[] losses  in the order of the step {number, group, loss}: the mean loss of each
---@return number[] terms  sums of the terms of the losses (mr.Losses); otherwise empty
function micros.losses(r, sum)
  collect(sum, 0)
  local flat, counts, losses, total, terms = {}, {}, {}, 0, {}
  local own = r.pipe.losses
  local names, moments = own and #own.names or 0, own and own:moments() or 0
  local width = 4 + names + moments
  for _, one in ipairs(r.mesh.leads and sum.own or {}) do
    local row = {one.number, one.level, one.weight, one.loss, table.unpack(one.terms)}
    table.move(one.moments or {}, 1, moments, #row + 1, row)
    table.move(row, 1, width, #flat + 1, flat)
  end
  for rank, row in ipairs(sum.all.by_rank) do
    counts[rank] = math.tointeger(row[#row])
  end
  for _, list in ipairs(r.team:lists(flat, counts, width)) do
    local mine = 0
    for i = 1, #list, width do
      local number, level, weight, loss = table.unpack(list, i, i + 3)
      mine = mine + loss
      for k = 1, names do
        terms[k] = (terms[k] or 0) + list[i + 3 + k]
      end
      -- a micro-batch without readable samples has no loss
      if weight > 0 then
        local group = ("%s, noise %d of %d"):format(sum.taken[number].name, level + 1,
          spikes.LEVELS)
        losses[#losses + 1] = {number = number, group = group, loss = loss / weight,
          moments = moments > 0 and table.move(list, i + 4 + names, i + width - 1, 1, {}) or nil}
      end
    end
    total = total + mine
  end
  table.sort(losses, function(a, b) return a.number < b.number end)
  for _, one in ipairs(moments > 0 and losses or {}) do
    own.adversary.network:remember(r.exec, one.moments)
  end
  return total, losses, terms
end

-- the next batch of the loader, which may fail: {ok, batch or problem}
local function draw(r, sum)
  local started = base.now_s()
  life.phase "load"
  local next = table.pack(pcall(r.loader.next, r.loader))
  sum.data_wait_s = sum.data_wait_s + base.now_s() - started
  return next
end

-- sends a batch of this rank to its micro-step; the inputs are copied to the device
local function send(r, next)
  local batch = next[2]
  local function shape_of(frames)
    return r.feed:shape{frames = frames, height = batch.height, width = batch.width,
      batch = batch.size}
  end
  local frames = r.feed.frames and r.feed:frames(batch) or batch.frames
  local shape = shape_of(frames)
  local micro = predict.micro_step(r, shape, shape_of(batch.frames))
  next.shorter = frames < batch.frames
  local input = r.feed:prepare(batch, shape, r.step)
  micro:stage(input)
  next.micro, next.input = micro, input
end

--- Draws and sends the first batch of the next step while the micro-steps of this one end. It does
-- not go beyond the last step, nor into another epoch, which leaves out samples that failed in this
-- one; ranks draw their batches together. An error here comes again when the batch is used.
function micros.send_ahead(r, sum)
  local s = r.settings
  if r.team.size > 1 or sum.last or (s.steps > 0 and r.step >= s.steps) or signal.pending() then
    return
  end
  r.ahead = draw(r, sum)
  if r.ahead[1] and r.ahead[2] then
    pcall(send, r, r.ahead)
  end
end

-- adds a micro-batch of this rank to the facts of a step
local function count(r, sum, next)
  if not next.input then
    send(r, next)
  end
  local input = next.input
  -- of the ranks that share a batch one counts it
  local counts, weight, t = r.mesh.leads and 1 or 0, 0, 0
  for b, w in ipairs(input.weight) do
    sum.weight, weight = sum.weight + counts * w, weight + w
    -- an autoencoder has no times
    sum.t = input.t and (sum.t or 0) + counts * w * input.t[b]
    t = t + w * (input.t and input.t[b] or 0)
  end
  sum.train_shift = input.train_shift
  sum.bytes = sum.bytes + counts * select(2, next[2]:pixels())
  next.reported = {number = next.number, weight = weight,
    level = spikes.level(weight > 0 and t / weight or 0, flow.T)}
  sum.own[#sum.own + 1], sum.bucket = next.reported, next.micro.key
  sum.mixed = sum.mixed or next.shorter
end

-- starts its forward and backward pass, added to the gradients; the loader may then reuse its batch
local function start(r, sum, next)
  life.phase "forward"
  next.input.update = r.updates + 1
  sum.losses[#sum.losses + 1] = {fetched = next.micro:start(next.input), reported = next.reported}
  -- large results are not kept until the step is over
  next.reported.moments = next.micro:moments()
  if r.watch then
    r.watch(r.step + 1, next.number, next.input, next.micro)
  end
  collect(sum, UNREAD_MAX)
  r.loader:release(next[2])
end

-- what all ranks know of a step so far
local function meet_over(r, sum)
  sum.all = meet(r, sum, {sum.weight, sum.t or 0, sum.bytes, r.loader:stats().failed,
    r.mesh.leads and #sum.own or 0})
end

-- Micro-batches in which ranks communicate, at most one of each rank: all ranks begin them
-- together, when all have theirs. A rank without a batch takes part in the communication.
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

-- records whether all micro-batches so far are of one bucket
local function note_shape(sum, batch)
  local shape = ("%dx%dx%d b%d"):format(batch.frames, batch.height, batch.width, batch.size)
  sum.shape = sum.shape or shape
  sum.mixed = sum.mixed or sum.shape ~= shape
end

-- Returns an object to close after a part of a step that does not change the state. If ranks lose
-- contact in that part, each rank still has the state of the step before.
local function unchanged(r)
  return setmetatable({}, {__close = function(_, problem)
    if type(problem) == "table" and problem.code == "MR_E_NODE" then
      saves.alone(r)
    end
  end})
end

--- The micro-batches of a step: every rank goes through all of them and computes its own. After the
-- last epoch there are no more.
---@param r table
---@return table sum  n, samples, epoch, weight, t, bytes: over all ranks; taken, by_source, bucket,
---   mixed: whether they were of several buckets; waits: of each rank; data_wait_s: the longest
---   wait for data; failed: samples that could not be read so far
function micros.run(r)
  local sum = {losses = {}, weight = 0, bytes = 0, samples = 0, n = 0, own = {}, taken = {},
    data_wait_s = 0, by_source = {}, waits = {}, met_s = base.now_s()}
  local _ <close> = unchanged(r)
  local mine, open = nil, 0
  for _ = 1, r.micros do
    local next = r.ahead or draw(r, sum)
    local batch = next[2]
    r.ahead = nil
    if not next[1] then
      meet(r, sum, NOTHING, batch)
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
      source = source, ids = batch.ids, keys = batch.keys, n = batch.n}
    if batch.other then
      r.loader:release(batch)
    elseif r.reported then
      mine = next
    else
      count(r, sum, next)
      start(r, sum, next)
    end
    if batch.last and r.team.size > 1 then
      meet(r, sum, NOTHING)
      micros.share_failures(r)
    end
    if r.reported and open == r.mesh.data then
      micro_batches_told(r, sum, mine)
      mine, open = nil, 0
    end
  end
  if r.reported and open > 0 then
    micro_batches_told(r, sum, mine)
  elseif not r.reported and sum.n > 0 then
    meet_over(r, sum)
  end
  if sum.n > 0 then
    local all = sum.all
    sum.weight, sum.t, sum.bytes = all[1], sum.t and all[2], all[3]
    sum.failed = math.tointeger(all[4])
    sum.data_wait_s = waits.longest(sum.waits)
  end
  return sum
end

return micros
