--- Compiles models and micro-steps of settings for a machine that need not exist here: the
-- trainer's own graphs on an executor without a device. Each is compiled once and freed at once;
-- only numbers are kept.
-- @module moonreel.plan.compiled
local E = require "moonreel.core.exec"
local clips = require "moonreel.comm.clips"
local coded = require "moonreel.plan.coded"
local conditions = require "moonreel.trainer.conditions"
local copies = require "moonreel.plan.copies"
local cost = require "moonreel.sample.cost"
local encoders = require "moonreel.trainer.encoders"
local eval_times = require "moonreel.diffusion.eval_times"
local feed = require "moonreel.trainer.feed"
local json = require "moonreel.core.json"
local layout = require "moonreel.comm.mesh"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local recompute = require "moonreel.trainer.recompute"
local regions = require "moonreel.optim.regions"
local shares = require "moonreel.plan.shares"
local state = require "moonreel.trainer.state"
local work = require "moonreel.plan.work"

local compiled = {}

local PARTS = 200  -- parts of a step in the picture of its memory

local Compiled = {}
Compiled.__index = Compiled

-- Kernels of a GPU that is not here need no workspace of a team. A plain processor with one thread
-- stands in for it, with products in bf16, as a device with its own memory.
local APART = { device = "shadow", isa = "base", threads = 1, bf16 = true, amx = false }

-- facts of a machine for a plan and, if it is this one, the device that rates it
local function device_of(m)
  return { facts = m.cpu or APART, rates = m.here }
end

--- Collects garbage by generations, because graphs live only for a short time.
---@return table  closing it restores the former collection
function compiled.by_generations()
  local before = collectgarbage("generational")
  return setmetatable({}, { __close = function() collectgarbage(before) end })
end

--- Makes an empty cache for a machine.
---@param m table  machine; `here` is the open device when it is this one
---@return moonreel.plan.Compiled
function compiled.new(m)
  return setmetatable({ machine = m, models = {}, graphs = {}, steps = {}, ranks = {} }, Compiled)
end

--- The device for which programs are planned.
---@return table  facts, rates: for E.plan
function Compiled:device() return device_of(self.machine) end

-- bytes of a program that a job does not have
local NONE = setmetatable({}, { __index = function() return 0 end })

-- a single rank does not keep gradients between micro-steps if a step has one
local function fresh_of(settings, ranks)
  return ranks == 1
    and regions.fresh(nil, math.max(settings.virtual_ranks, 1) * settings.accumulate)
end

local RECORDS = { model = true, vae = true, text_encoder = true, clip = true,
  vae_loss_config = true, discriminator = true, gen_loss_config = true, disc_loss_config = true,
  condition_config = true }

-- The fields on which the graphs of models and losses depend. The place of an autoencoder's weights
-- is not among them, nor are fields without a meaning here.
local function shapes_of(settings)
  local fields = {}
  for _, leaf in ipairs(settings:leaves()) do
    if RECORDS[leaf.keys[1]] and not leaf.row.no_meaning and leaf.path ~= "vae.from_pretrained" then
      fields[leaf.path] = leaf.value
    end
  end
  return fields
end

-- the key of graphs: the values on which they depend
local function key_of_graphs(settings, dtype, fresh)
  return json.encode { shapes_of(settings), settings.compat or "",
    settings.optim.ema_decay ~= nil, dtype, fresh,
    settings.optim.offload, settings.optim.moment_bits,
    settings.job, settings.optim.type, settings:plain("optim").muon or "" }
end

-- the key of graphs with their encoders
local function key_of(settings, graphs)
  return graphs .. json.encode { settings.vae.from_pretrained or "", settings.cached,
    settings.load_video_features, settings.load_text_features }
end

-- the kind of an optimizer's region
local function kind_of(row)
  if row.space == "pinned" then
    return "offloaded"
  end
  if row.role == "state" then
    return regions.kind(row.name) == regions.gradients()[1].name and "gradients" or "moments"
  end
  return ({ weights = "weights", frozen = "frozen", master = "masters",
    average = "averages" })[row.role]
end

-- transient regions are bytes of the arena
local function region_bytes(rows)
  local bytes = { weights = 0, frozen = 0, masters = 0, moments = 0, averages = 0, gradients = 0,
    offloaded = 0 }
  for _, row in ipairs(rows) do
    local kind = kind_of(row)
    if not (row.shared or row.transient) then
      bytes[kind] = bytes[kind] + row.bytes
    end
  end
  return bytes
end

-- memory and seconds of the optimizer's step, and the machine's fields that decide them
local function update_of(m, exec, params, rule, dtype)
  local update = optim.new(exec, params, nil, nil, { rule = rule })
  local parts, _, by = work.parts(m, update.prog:kinds(), dtype)
  local out = { memory = update.prog:memory(), seconds = parts.forward, by = by }
  update.prog:close()
  update.graph:close()
  return out
end

-- Figures of encoder programs, once for each, because many buckets run the same: seconds and the
-- fields that decide them; bytes that a rank sends, and its calls.
local function asked_of(m, dtype)
  local known = setmetatable({}, { __mode = "k" })
  local function of(prog)
    if not known[prog] then
      local kinds = prog:kinds()
      local parts, _, by = work.parts(m, shares.computed(kinds), dtype)
      known[prog] = { seconds = parts.forward, by = by, bytes = shares.sent(kinds),
        calls = shares.calls(kinds) }
    end
    return known[prog]
  end
  return function(prog) return of(prog).seconds, of(prog).by end,
    function(prog) return of(prog).bytes, of(prog).calls end
end

-- the bytes of the peak by purpose and kind of block, largest first
local function who_lives(live)
  local by, list = {}, {}
  for _, row in ipairs(live) do
    local block = row.block:gsub("%.%d+$", "")
    local key = row.purpose .. " " .. block
    local entry = by[key]
    if not entry then
      entry = { purpose = row.purpose, block = block, bytes = 0, ranges = 0 }
      by[key], list[#list + 1] = entry, entry
    end
    entry.bytes, entry.ranges = entry.bytes + row.bytes, entry.ranges + 1
  end
  table.sort(list, function(a, b)
    if a.bytes ~= b.bytes then
      return a.bytes > b.bytes
    end
    return a.purpose .. a.block < b.purpose .. b.block
  end)
  return list
end

-- The models of a job that only encodes and decodes clips. `pipe` has no model besides the
-- autoencoder, and no parameter trains.
local function coder_of(self, settings, dtype)
  local device, m = device_of(self.machine), self.machine
  -- processors of this host write the files
  m.encode_rate = m.here and cost.encode_rate() or m.encode_rate
  local pipe = pipeline.coder(settings, dtype, settings.ckpt_path)
  pipe.model, pipe.reconstructs = pipe.autoencoder, true
  local coder = coded.new(pipe, { machine = m, facts = device.facts,
    rates = device.rates, look = function(prog) return who_lives(prog:live()), prog:profile(PARTS)
    end })
  local bytes = region_bytes {}
  bytes.weights = coder.weights
  return { pipe = pipe, dtype = dtype, job = settings.job, coder = coder, exec = coder,
    encoders = { weights = 0, notes = {}, close = function() end }, trained = 0,
    all = coder.parameters, regions = bytes, saved = 0,
    update = { memory = NONE, seconds = 0, by = {} } }
end

--- Compiles the models of settings.
---@param settings table  baked
---@param ranks integer|nil  ranks that train together; nil: one
---@param layers integer|nil  ranks that share each layer, also of text encoders; nil: one
---@param shared integer|nil  ranks that share a batch, and its clips if the settings say so; nil:
---   one
---@return table models  pipe, exec, dtype; trained and all parameters; regions: bytes by kind,
---   saved: those in a checkpoint; update: memory, seconds and by (the fields that decide them) of
---   the optimizer's step; encoders: moonreel.plan.Encoders; job: a job other than training; coder:
---   moonreel.plan.Coded, if the job only encodes and decodes clips
function Compiled:of(settings, ranks, layers, shared)
  local m = self.machine
  local dtype = (settings.dtype == "fp32" or m.cpu and not m.cpu.bf16) and "f32" or "bf16"
  -- a search for batches trains, too
  local trains = settings.job == "train" or settings.job == "batch_search"
  local job = not trains and settings.job or nil
  local fresh = not job and fresh_of(settings, ranks or 1)
  local graphs = key_of_graphs(settings, dtype, fresh)
  local split = layout.split(settings, 0, job and 1 or layers or 1)
  local how = not job and (ranks or 1) > 1 and not pipeline.reconstructs(settings)
    and clips.of_batch(settings, shared or 1) or { ranks = 1, by = "" }
  local key = key_of(settings, graphs) .. split.ranks .. how.by .. how.ranks
  if self.models[key] then
    return self.models[key]
  elseif job == "reconstruct" then
    self.models[key] = coder_of(self, settings, dtype)
    self.models[key].key = key .. " "
    return self.models[key]
  end
  local pipe = pipeline.of(settings, dtype)
  pipe:share_texts(split)
  if how.ranks > 1 and pipe.autoencoder.apart then
    clips.share(settings, pipe.autoencoder, how, { ranks = how.ranks,
      rank = how.ranks > 2 and 1 or 0 })
  end
  local device, seconds, talks = device_of(m), asked_of(m, dtype)
  local exec = E.plan(pipe.params, { regions = not job and regions.of(settings, nil, nil,
    fresh, pipe.params) or nil, facts = device.facts, rates = device.rates })
  local models = { key = key, graphs = graphs, pipe = pipe, exec = exec, dtype = dtype, job = job,
    fresh = fresh,
    encoders = encoders.new(pipe, { facts = device.facts, rates = device.rates,
      memory_bytes = m.memory_bytes, read_rate = m.host and m.host.read,
      seconds = seconds, talks = talks,
      conditions = conditions.new(settings, pipe, {}),
      video = settings.cached or settings.load_video_features,
      captions = settings.cached or settings.load_text_features }) }
  models.trained, models.all = pipe:counts()
  models.regions, models.saved = region_bytes(exec:regions()), state.saved_bytes(exec, pipe.params)
  models.update = job and { memory = NONE, seconds = 0, by = {} }
    or update_of(m, exec, pipe.params, optim.rule(settings), dtype)
  if job == "extract" then
    -- the model itself is not loaded
    models.regions.weights, models.regions.frozen = 0, 0
  end
  self.models[key] = models
  return models
end

-- the values on which a rank's graphs depend
local function key_of_rank(settings, models, mesh)
  return table.concat({ models.graphs, mesh.ranks, mesh.gpus, mesh.zero, mesh.layers,
    tostring(mesh:keeps_gradients(settings)), tostring(mesh:micros(settings) <= mesh.data),
    settings.plugin_config.reduce_bucket_size_in_m or "" }, " ")
end

--- The first rank of a mesh with several.
---@param settings table
---@param models table   from `of`
---@param mesh moonreel.plan.Mesh
---@return moonreel.plan.Rank
function Compiled:rank(settings, models, mesh)
  local key = key_of_rank(settings, models, mesh)
  if not self.ranks[key] then
    local rank = shares.rank(settings, mesh, models, device_of(self.machine))
    rank.key, self.ranks[key] = key, rank
  end
  return self.ranks[key]
end

--- The state that one rank of a mesh keeps, and the part that it sends in a step.
---@param settings table
---@param models table   from `of`
---@param mesh moonreel.plan.Mesh
---@param bucket table|nil  any bucket; nil: no micro-step runs, or the sent bytes are not needed
---@return table shares  regions: bytes by kind; state: their sum; saved: bytes that the rank saves;
---   buckets: of gradients, windows: of weights, largest temporary bytes; sent: bytes in a step
---@return table update  memory of the optimizer's step
function Compiled:share(settings, models, mesh, bucket)
  if mesh.ranks == 1 or models.job then
    return { regions = models.regions, saved = models.saved, state = 0, buckets = 0, windows = 0,
      sent = 0 }, models.update.memory
  end
  local rank = self:rank(settings, models, mesh)
  if not rank.op_log and bucket and (rank.team.gradients or rank.team.weights) then
    -- graphs of all shapes send the same
    rank.op_log = self:rank_step(settings, models, mesh, bucket).op_log
  end
  local bytes = rank:bytes(rank.op_log or "", mesh:rounds(settings))
  bytes.regions, bytes.saved = region_bytes(rank.exec:regions()), rank.saved
  return bytes, rank.update
end

-- the config of a graph; a choice of recomputation applies if the settings leave it open
local function config_of(settings, choice, ...)
  local config = program.config(settings, ...)
  return config.grad_ckpt_settings == "auto" and program.chosen(config, choice or false) or config
end

-- A step of the graph alone, which settings with other encoders share, together with the encoders
-- of its batch.
local function encoded(graph, models, bucket)
  local step, parts = setmetatable({}, { __index = graph }), {}
  for part, seconds in pairs(graph.parts) do
    parts[part] = seconds
  end
  parts.encode, step.encoding, parts.read, step.encode_by, step.encode_talk =
    models.encoders:batch(bucket)
  step.parts = parts
  return step
end

-- A step, made once: `build` makes its graph if no other settings have needed it yet.
local function known(self, models, bucket, key, build)
  local whole = models.key .. key
  if not self.steps[whole] then
    self.graphs[key] = self.graphs[key] or build()
    self.steps[whole] = encoded(self.graphs[key], models, bucket)
  end
  return self.steps[whole]
end

-- figures of both kinds of steps; if the device is the host, there are no copies in flight
local function facts_of(self, models, prog, live)
  local step, m = { memory = prog:memory(), live = who_lives(live), profile = prog:profile(PARTS) },
    self.machine
  if step.memory.pinned > 0 and not m.cpu then
    step.copies, step.copies_wait = copies.of(m, prog:times(), models.dtype)
  end
  return step
end

--- The micro-step of a bucket.
---@param settings table
---@param models table   from `of`
---@param bucket table   frames, height, width, batch
---@param choice integer[]|boolean|nil  of moonreel.trainer.recompute, if the settings leave it open
---@return table step  memory (as mr.Program memory()), copies and copies_wait (of
---   moonreel.plan.copies, if inputs of blocks are kept in host memory), live, profile (bytes over
---   the step), parts (seconds: forward, recompute, backward, encode), ops, useful: operations that
---   count, encoding: bytes of active encoders; by, encode_by: seconds of the pass and of encoders
---   by the field of the machine that decides them
function Compiled:step(settings, models, bucket, choice)
  if models.coder then
    local key = ("%s%dx%dx%d of %d"):format(models.key, bucket.frames, bucket.height, bucket.width,
      bucket.batch)
    self.steps[key] = self.steps[key] or models.coder:step(bucket)
    return self.steps[key]
  elseif models.job == "extract" then
    local parts = { forward = 0, recompute = 0, backward = 0 }
    return encoded({ memory = NONE, live = {}, useful = 0, profile = {}, parts = parts, ops = {},
      by = {} }, models, bucket)
  end
  local shape = feed.new(settings, models.pipe):shape(bucket)
  local config = config_of(settings, choice, nil, nil, models.fresh)
  config.forward = models.job == "eval_loss"
  local passes = config.forward and eval_times.passes(settings) or 1
  local key = models.graphs .. program.key(shape) .. json.encode(config) .. passes
  return known(self, models, bucket, key, function()
    local graph <close> = program.graph(models.pipe, shape, config)
    local prog <close> = models.exec:compile(graph)
    local kinds = prog:kinds()
    local step = facts_of(self, models, prog, prog:live())
    step.useful, step.again = work.useful(kinds), recompute.operations(kinds)
    step.parts, step.ops, step.by = work.parts(self.machine, kinds, models.dtype)
    -- a batch of an evaluating job is encoded once and used at every time
    step.parts.forward = step.parts.forward * passes
    return step
  end)
end

--- The number of blocks of each kind in the micro-step of a bucket; it is the same on all ranks.
---@param settings table
---@param models table   from `of`
---@param bucket table
---@return integer[]
function compiled.blocks(settings, models, bucket)
  return program.blocks(models.pipe, feed.new(settings, models.pipe):shape(bucket),
    program.config(settings))
end

-- how ranks share tokens, and all else on which the graph of a rank depends
local function key_of_step(rank, shape, seq, config)
  local levels = seq and { seq.heads.ranks, seq.inner.ranks, seq.outer.ranks } or {}
  return table.concat({ rank.key, program.key(shape), table.concat(levels, "x"),
    json.encode(config) }, " ")
end

--- The micro-step of a bucket on the first rank of a mesh.
---@param settings table
---@param models table   from `of`
---@param mesh moonreel.plan.Mesh
---@param bucket table
---@param choice integer[]|boolean|nil  as in `step`
---@return table step  of `step`, if there is one rank; else memory, live, profile, parts and ops of
---   the rank's own graph; windows and buckets: bytes at its peak for gathered weights and for
---   gradients before reduction; op_log: its communication; sent: bytes of tokens that it sends, in
---   `calls`; useful operations and encoders are those of the whole
function Compiled:rank_step(settings, models, mesh, bucket, choice)
  if mesh.ranks == 1 or models.job then
    return self:step(settings, models, bucket, choice)
  end
  local rank = self:rank(settings, models, mesh)
  local heads = not rank.pipe.reconstructs and models.pipe.model.config.num_heads or nil
  local seq, shape = shares.sequence(settings, mesh, heads), feed.new(settings, rank.pipe)
    :shape(bucket)
  local key = key_of_step(rank, shape, seq, config_of(settings, choice))
    .. (mesh.clips and (" %s by %d"):format(mesh.clips, mesh.sequence) or "")
  shares.clips(settings, mesh, rank.pipe.autoencoder)
  return known(self, models, bucket, key, function()
    local graph <close> = program.graph(rank.pipe, shape, config_of(settings, choice,
      rank.reduces and rank.team or nil, seq))
    local prog <close> = rank.exec:compile(graph)
    local kinds, live = prog:kinds(), prog:live()
    local step = facts_of(self, models, prog, live)
    step.again = recompute.operations(kinds)
    step.op_log, step.sent, step.calls = graph:op_log(), shares.sent(kinds), shares.calls(kinds)
    step.windows, step.buckets = rank:shared(live)
    step.parts, step.ops, step.by = work.parts(self.machine, shares.computed(kinds), models.dtype)
    step.useful = mesh.sequence * mesh.layers == 1 and work.useful(kinds) or nil
    -- ranks that share tokens or layers do a part of the work, and all of them do some of it
    return setmetatable(step, { __index = function(_, name)
      return name == "useful" and self:step(settings, models, bucket, choice).useful or nil
    end })
  end)
end

--- Frees everything.
function Compiled:close()
  for _, models in pairs(self.models) do
    models.encoders:close()
    models.exec:close()
  end
  for _, rank in pairs(self.ranks) do
    rank:close()
  end
  self.models, self.ranks = {}, {}
end
Compiled.__close = Compiled.close

return compiled
