--- Seconds of a bucket's micro-step and optimizer step, and values to compare them with: tokens,
-- decode cores.
-- @module moonreel.plan.seconds
local collective = require "moonreel.plan.collective"
local processors = require "moonreel.trainer.processors"
local schedule = require "moonreel.plan.schedule"
local sharing = require "moonreel.optim.ranks"
local simulate = require "moonreel.plan.simulate"

local seconds = {}

local known_slowest = {}

--- Tokens of a bucket's batch.
---@return integer
function seconds.tokens(models, b)
  local size = models.pipe.autoencoder:latent(b.frames, b.height, b.width)
  local frames, rows, cols = models.pipe.model:grid(size[2], size[3], size[4])
  return b.batch * frames * rows * cols
end

--- The number of elements that ranks send each other at once.
---@return integer
function seconds.bucket_elements(settings, mesh, models)
  local cut = sharing.cut(settings, mesh.ranks)
  return cut and cut.elements or models.trained
end

--- The factor of the slowest rank; its integral is computed once for each number.
---@param ranks integer
---@return number factor
function seconds.slowest(ranks)
  known_slowest[ranks] = known_slowest[ranks] or simulate.slowest(ranks, simulate.SIGMA)
  return known_slowest[ranks]
end

-- Communication of ranks that share tokens or layers in a micro-step: seconds, and the bytes that
-- one rank sends. The bytes in the graph of a rank are divided into inside and between nodes in the
-- proportions of attention by formula; ranks that share layers are on one node. Layers of an
-- autoencoder wait for each of their many small messages. Ref: reference parallelism 5 to 7.
local function exchange_of(settings, mesh, models, b, step)
  if mesh.sequence * mesh.layers == 1 or models.job then
    return { seconds = 0, bytes = 0 }
  end
  local m, config = mesh.machine, models.pipe.model.config
  local near, far = 1, 0
  local together, clips = mesh.sequence * mesh.layers <= mesh.gpus, step.encode_talk.clips
  if mesh.clips then
    near, far = together and 1 or 0, together and 0 or 1
  elseif mesh.sequence > 1 then
    near, far = mesh:exchange(settings, config.num_heads, seconds.tokens(models, b),
      config.hidden_size)
  end
  near, far = step.sent * near / (near + far), step.sent * far / (near + far)
  -- ranks that share tokens each encode a part of the captions
  near = near + step.encode_talk.text.bytes / mesh.sequence + (together and clips.bytes or 0)
  far = far + (together and 0 or clips.bytes)
  local calls = clips.calls + (mesh.clips and step.calls or 0)
  return { bytes = near + far, seconds = (near > 0 and near / m.node.link or 0)
    + (far > 0 and far * mesh.gpus / m.network.cards / m.network.card or 0)
    + (calls > 0 and calls * collective.call(m, together) or 0) }
end

--- Parts of a micro-step; arguments and result are those of Open:micro. Inputs of blocks in host
-- memory are copied there during the forward pass and back during the backward pass, and each pass
-- lasts at least as long as its copies.
---@param open table  from plan.open
function seconds.micro(open, b, step)
  local mesh, models = open.mesh, open.models
  local exchange = exchange_of(open.settings, mesh, models, b, step)
  local share, parts, s = mesh.sequence * mesh.layers, step.parts, {}
  -- ranks that share a batch each encode a part of it, but all read the encoder's weights
  s.encode = parts.encode / share + parts.read
  for _, part in ipairs { "forward", "recompute", "backward" } do
    s[part] = parts[part] / (models.job and share or 1)
  end
  s.away = mesh.machine.cpu and 0 or step.memory.pinned / mesh.machine.host.pcie
  s.forward, s.backward = math.max(s.forward, s.away), math.max(s.backward, s.away - s.recompute)
  s.exchange, s.exchange_bytes = exchange.seconds, exchange.bytes
  s.decode, s.files, s.waits = parts.decode or 0, 0, 0
  s.micro = s.encode + s.forward + (s.backward + s.recompute) + s.exchange + s.decode
  return s
end

-- source pixels of the batches of a step: sources have the size in the index, or without one the
-- size of the bucket
local function source_pixels(settings, mesh, b)
  return b.batch * (b.source_pixels or b.height * b.width) * (b.frames > 1
    and b.frames * (settings.dataset.frame_interval or 1) or 1) * mesh:rounds(settings)
end

-- A batch of clips that are encoded and decoded one by one, each with its files written before the
-- next begins. Decoder processes read the next batch at the same time.
local function of_clips(open, b, step)
  local m, coder = open.mesh.machine, open.models.coder
  local s = seconds.micro(open, b, step)
  for _, part in ipairs { "update", "input", "reduce", "gather", "exposed", "hidden", "slowest" } do
    s[part] = 0
  end
  local workers = math.max(1, m.here and math.min(open.settings.num_workers, processors.count())
    or open.settings.num_workers)
  s.read = source_pixels(open.settings, open.mesh, b) / m.decode_rate / workers
  s.files = b.batch * coder:file_s(b)
  s.waits = math.max(0, s.read - s.micro - s.files)
  local how = schedule.of_clips(s)
  s.step = how.seconds
  return s, how
end

--- An optimizer step over all ranks: micro-steps, additional communication, update. Arguments and
-- results are those of Open:seconds.
---@param open table  from plan.open
function seconds.of(open, b, step)
  local settings, mesh, models = open.settings, open.mesh, open.models
  if models.coder then
    return of_clips(open, b, step)
  end
  local m, n, s = mesh.machine, mesh:rounds(settings), seconds.micro(open, b, step)
  -- ranks of a job do not communicate
  if models.job then
    mesh = mesh:alone()
  end
  local backward = s.backward + s.recompute
  s.update = models.update.seconds * mesh:share()
  s.input = m.cpu and 0 or step.memory.inputs / m.host.pcie
  local each = mesh:reduces_each(settings)
  local work = { input_s = s.input, encode_s = s.encode, forward_s = s.forward + s.exchange / 2,
    backward_s = backward + s.exchange / 2, update_s = s.update,
    parameters = models.trained // mesh.layers,
    weight_bytes = models.dtype == "f32" and 4 or 2, reduce = (each or n == 1) and "each" or "last",
    bucket = seconds.bucket_elements(settings, mesh, models) }
  -- the last micro-step and the update, with their waits; earlier micro-steps communicate less
  local how, before = schedule.of(mesh, work), { seconds = s.micro, reduce = 0, gather = 0 }
  if n > 1 and mesh.ranks > 1 then
    before = schedule.of(mesh, work, each)
  end
  s.reduce, s.gather = how.reduce + (n - 1) * before.reduce, how.gather + (n - 1) * before.gather
  s.exposed = mesh.ranks > 1 and how.seconds - s.micro - s.update
    + (n - 1) * (before.seconds - s.micro) or 0
  s.hidden = math.max(0, s.reduce + s.gather - s.exposed)
  s.slowest = (seconds.slowest(mesh.ranks) - 1) * n * s.micro
  s.step = n * s.micro + s.exposed + s.slowest + s.update
  return s, how
end

--- Share of the peak rate that the useful operations reach.
---@param micro number  seconds of a micro-step
---@return number
function seconds.share_of_peak(mesh, models, step, micro)
  return micro > 0 and step.useful / (mesh.sequence * mesh.layers) / micro
    / mesh.machine.peak[models.dtype] or 0
end

--- Number of cores that decode the data of one rank; 0 if latents come from a cache.
---@return number
function seconds.decode_cores(settings, mesh, b, step_s)
  local cached = settings.cached or settings.load_video_features
  return cached and 0 or step_s > 0 and source_pixels(settings, mesh, b)
    / (mesh.sequence * mesh.layers) / mesh.machine.decode_rate / step_s or 0
end

return seconds
