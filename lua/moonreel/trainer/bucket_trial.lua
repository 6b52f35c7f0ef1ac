--- Finds the size of communication buckets by trial, if the recipe asks for that
-- (plugin_config.reduce_bucket_size_in_m = "auto"). Before the state of the run is allocated, it
-- runs some steps over zeros at the size of the formula and at sizes around it. All ranks take the
-- same size. The gradient norm is a sum of sums over buckets, so its last bits depend on the size:
-- a resumed run with the same number of ranks keeps the size found before, and a recipe that sets
-- the size from the journal gives the bits of the run. Ref: parallelism 2.
-- @module moonreel.trainer.bucket_trial
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local bucket_size = require "moonreel.optim.bucket_size"
local buckets = require "moonreel.data.buckets"
local feed = require "moonreel.trainer.feed"
local mesh = require "moonreel.comm.mesh"
local optim = require "moonreel.optim"
local program = require "moonreel.trainer.program"
local ranks = require "moonreel.optim.ranks"
local setup = require "moonreel.trainer.setup"

local bucket_trial = {}

--- Measured steps of a trial, after one that is not measured.
bucket_trial.steps = 3

local MILLION = 1 << 20
-- another size must be this many times faster than the size of the formula
local MARGIN = 1.01
-- share of a micro-step that is not the forward pass
local BACKWARD = 2 / 3
-- elements of the sums by which links are measured, and the number of sums
local SMALL, LARGE, SUMS = 1, 1 << 20, 3

-- the bucket with the most pixels in a batch, in the recipe's table
local function largest_of(settings)
  local found, most
  for _, resolution in ipairs(buckets.resolve(settings:plain "bucket_config",
      settings:plain "resolutions", nil, settings.compat, settings.ae_spatial_compression)) do
    for _, length in ipairs(resolution.lengths) do
      local frames, keep, try, batch = table.unpack(length)
      for _, aspect in ipairs(keep * try > 0 and batch > 0 and resolution.aspects or {}) do
        local pixels = batch * frames * aspect[2] * aspect[3]
        if not most or pixels > most then
          found, most = { frames = frames, height = aspect[2], width = aspect[3],
            batch = batch }, pixels
        end
      end
    end
  end
  return found
end

-- the longest time of all ranks
local function slowest(r, seconds)
  for _, row in ipairs(r.team:all { seconds }) do
    seconds = math.max(seconds, row[1])
  end
  return seconds
end

-- seconds of a sum of `elements` elements over all ranks: the fastest of several
local function sum_s(r, elements)
  local x <close>, least = T.new("f32", { elements }), math.huge
  for _ = 1, SUMS do
    r.team.world:barrier()
    local from = base.now_s()
    r.team.world:all_reduce(x)
    least = math.min(least, base.now_s() - from)
  end
  return slowest(r, least)
end

local function close(t)
  for i = #t.kept, 1, -1 do
    t.kept[i]:close()
  end
end

-- runs a micro-step over zeros
local function micro_step(t)
  local config = program.config(t.settings, t.reduced and t.ranks or nil, t.mesh.sequence, t.fresh)
  local shape = feed.new(t.settings, t.pipe):shape(largest_of(t.settings))
  if config.grad_ckpt_settings == "auto" then
    config = program.chosen(config, program.blocks(t.pipe, shape, config))
  end
  local step = t:keep(program.new(t.exec, t.pipe, shape, config))
  for name, input in pairs(step.graph:inputs()) do
    local zeros <close> = T.new(input.dtype, input.shape)
    step.prog:set(name, zeros)
  end
  return step
end

-- median seconds of a step, and of its micro-step, with buckets of `elements` elements
local function try(r, elements)
  local s = r.settings
  local t <close> = setmetatable({ kept = {}, notes = {}, split = mesh.split(s, r.team.rank) },
    { __index = r, __close = close })
  t.pipe = setup.models_of(s, r.dtype, ranks.cut(s, r.team.size, nil, elements), t.split)
  setup.layout(t)
  t.exec:init(s.seed)
  local update, step = optim.new(t.exec, t.pipe.params, t.ranks, t.reduced, { rule = t.rule }),
    micro_step(t)
  t:keep(update.graph)
  t:keep(update.prog)
  local o, steps, micros = s.optim, {}, {}
  for i = 0, bucket_trial.steps do
    r.team.world:barrier()
    local from = base.now_s()
    step.prog:run()
    step.prog:fetch(t.pipe.reconstructs and "terms" or "loss"):get()
    local micro = base.now_s() - from
    update:step { lr = 0, beta1 = o.betas[1], beta2 = o.betas[2], eps = o.eps, weight_decay = 0,
      step = 1, grad_scale = 1, muon = t.rule and t.rule.of(0) }
    steps[#steps + 1], micros[#micros + 1] = i > 0 and slowest(r, base.now_s() - from) or nil, micro
  end
  table.sort(steps)
  return steps[#steps // 2 + 1], slowest(r, micros[#micros])
end

-- The size by the formula, for the links as measured now. Links of GPUs are not measured; the
-- formula then begins without their rates.
local function by_formula(r, trained)
  local start = bucket_size.start(r.team.size)
  if r.facts.device ~= "cpu" then
    return start
  end
  local _, micro_s = try(r, start)
  local latency_s, large_s = sum_s(r, SMALL), sum_s(r, LARGE)
  return bucket_size.formula { bytes = 4 * trained, element = 4, latency_s = latency_s,
    rate = 4 * LARGE / math.max(large_s - latency_s, 1e-9), backward_s = BACKWARD * micro_s }
end

-- the size that this run found before, from its checkpoint
local function found_before(r)
  local before = r.found and r.source.manifest.run_state.bucket_size
  return before and before.ranks == r.team.size and before.elements or nil
end

local function say(r, elements, form, ...)
  r.progress:say(("reduce_bucket_size_in_m = %g" .. form):format(elements / MILLION, ...))
end

-- tries sizes; returns the row of the journal
local function found_now(r)
  local trained = r.pipe:counts()
  local size = { ranks = r.team.size, formula = by_formula(r, trained), tried = {} }
  for i, elements in ipairs(bucket_size.around(size.formula, trained)) do
    size.tried[i] = { elements = elements, seconds = (try(r, elements)) }
  end
  size.elements = bucket_size.best(size.tried, MARGIN)
  for _, one in ipairs(size.tried) do
    say(r, one.elements, ": %.1f ms a step%s%s", one.seconds * 1000,
      one.elements == size.formula and ", by formula" or "",
      one.elements == size.elements and ", chosen" or "")
  end
  return size
end

--- Finds the size and declares the models again with it. Does nothing if the recipe sets the size,
-- if there is one rank, or if no bucket takes samples, which later steps refuse.
function bucket_trial.run(r)
  local s = r.settings
  if s.plugin_config.reduce_bucket_size_in_m ~= "auto" or r.team.size == 1
      or not largest_of(s) then
    return
  end
  local before = found_before(r)
  if before then
    say(r, before, ", as before")
  end
  r.bucket_size = before and { ranks = r.team.size, elements = before, kept = true }
    or found_now(r)
  r.pipe = setup.models_of(s, r.dtype, ranks.cut(s, r.team.size, nil, r.bucket_size.elements),
    r.split)
end

return bucket_trial
