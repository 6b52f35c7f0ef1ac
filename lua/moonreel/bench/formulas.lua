--- Graphs compared with the closed forms of their models: operations, kept bytes, parameters.
-- Ref: reference plan 2 to 5.
-- @module moonreel.bench.formulas
local closed = require "moonreel.plan.closed"
local compiled = require "moonreel.plan.compiled"
local mesh = require "moonreel.plan.mesh"
local mmdit = require "moonreel.bench.mmdit"
local plan = require "moonreel.plan"
local published = require "moonreel.plan.published"
local settings = require "moonreel.settings"
local work = require "moonreel.plan.work"

local formulas = {}

local NEAR = 0.1  -- largest relative difference of a graph from the formula
local SHAPES = "closed forms of the models' shapes (lua/moonreel/plan/closed.lua)"
local MLPERF = "mlcommons/training text_to_image; results of MLPerf Training 5.1"

-- Adds a row with the formula in place of a published number. `within`: {least, most} allowed
-- values of the graph, if it is not near the formula; `source`: source of a published number
local function row(rows, run, what, formula, graph, note, within, source)
  local low, high = table.unpack(within or { formula * (1 - NEAR), formula * (1 + NEAR) })
  published.add(rows, { run = run, what = what, published = formula, planned = graph, low = low,
    high = high, source = source or SHAPES, note = note, table = not source and "forms" or nil })
end

-- per token if no block is recomputed, in `norms` norms of tokens of this width
local function row_of_token(rows, run, width, eager, norms, graph)
  row(rows, run, "kB of a token, no block recomputed", closed.kept(width, eager, norms) / 1e3,
    graph / 1e3, ("eager kernels keep %.0f; here norm and modulation are one kernel, which keeps "
    .. "no normed tokens"):format(eager * width / 1e3))
end

-- buckets of the reproduction: resolution, frames, batch; GB of a rank by the reference's sum
local BUCKETS = { { "144p", 51, 51, 43 }, { "144p", 1, 475, 34 }, { "240p", 51, 20, 46 },
  { "360p", 51, 8, 43 }, { "720p", 1, 36, 48 } }

-- bytes that blocks keep for the backward pass
local function kept(b)
  local bytes = 0
  for _, one in ipairs(b.live) do
    local block = one.block:match "^%a+_blocks$"
    bytes = bytes + (block and one.purpose == "kept" and one.bytes or 0)
  end
  return bytes
end

-- the plan of one bucket of a stage
local function planned(of, cache, b, ...)
  local s = settings.bake("opensora-1.2/lambda/stage1", { ...,
    ("bucket_config=recipe.replace{['%s'] = {[%d] = {1.0, %d}}}"):format(table.unpack(b)) })
  return plan.of(s, { mesh = of, compiled = cache }), s
end

local function stdit3(rows)
  local run, of = "STDiT3-XL/2 on 192 H100", mesh.parse "24x8xH100"
  local cache <close> = compiled.new(of.machine)
  for i, b in ipairs(BUCKETS) do
    -- as in the reference: of a recomputed block only the input is kept
    local p, s = planned(of, cache, b, "grad_ckpt_keep_attention=false")
    local got = p.largest
    local shape = closed.stdit3_shape(got.height, got.width, got.frames, got.batch)
    local name = ("%s, %d frames, batch %d"):format(table.unpack(b))
    row(rows, run, "TFLOP of a step, " .. name, closed.stdit3_operations(shape) / 1e12,
      got.useful / 1e12)
    row(rows, run, "GB that recomputed blocks keep, " .. name, closed.stdit3_kept(shape) / 1e9,
      kept(got) / 1e9)
    row(rows, run, "GB in all, " .. name, b[4] - closed.fused(shape) / 1e9, got.total / 1e9,
      ("eager kernels take %d; here norm and modulation are one kernel, and so are a product and "
      .. "GELU"):format(b[4]))
    if i == 1 then
      row(rows, run, "G parameters", closed.stdit3.parameters / 1e9, p.parameters / 1e9)
      local useful = 0
      for _, part in ipairs(cache:of(s).encoders.texts[1]:encoders(1)) do
        useful = useful + part.runs * work.useful(part.prog:kinds())
      end
      row(rows, "T5 XXL", "TFLOP of a caption of 300 tokens",
        2 * closed.t5.products * 300 / 1e12, useful / 1e12)
    end
  end
  local one = planned(of, cache, { "144p", 51, 4 }, "grad_checkpoint=false").largest
  local m = closed.stdit3
  row_of_token(rows, run, m.width, 52 * m.blocks, 2 * m.blocks, kept(one) / one.tokens)
end

local function mmdit_graphs(rows)
  local run = "the MMDiT's shapes"
  local function graph(s, batch, again) return mmdit.plan(batch, s.tokens - mmdit.text, again) end
  for _, b in ipairs { { 256, 129, 3 }, { 768, 129, 2 } } do
    local s = closed.mmdit_shape(table.unpack(b))
    local got = graph(s, b[3], true)
    row(rows, run, ("PFLOP of a step, %d px, %d frames, batch %d"):format(table.unpack(b)),
      closed.mmdit_operations(s) / 1e15, got.useful / 1e15)
    if b[1] == 256 then
      row(rows, run, "G parameters", closed.mmdit.parameters / 1e9, got.parameters / 1e9)
    end
  end
  local m, few, many = closed.mmdit, 4096, 8192
  row_of_token(rows, run, m.width, 46 * m.double + 38 * m.single, 2 * m.double + m.single,
    (mmdit.plan(1, many, false).arena - mmdit.plan(1, few, false).arena) / (many - few))
end

-- seconds of a bucket's ops by class
local function by_class(b)
  local seconds = { product = 0, attention = 0, convolution = 0, stream = 0 }
  for _, op in ipairs(b.ops) do
    local class = work.class(op.op)
    seconds[class] = seconds[class] + op.seconds
  end
  return seconds
end

-- The published step of 10.2 s, part by part: what the formulas and the graphs give. A part that
-- the formulas do not cover is 0.
local function stage1(rows)
  local run, of = "Open-Sora 2.0 stage 1, 224 H200, a step of 129 frames", mesh.parse "28x8xH200"
  local cache <close> = compiled.new(of.machine)
  local s = settings.bake("opensora-2.0/train/stage1",
    { "bucket_config=recipe.replace{['256px'] = {[129] = {1.0, 3}}}" })
  local b = plan.of(s, { mesh = of, compiled = cache }).largest
  local ours, shape = by_class(b), closed.mmdit_shape(256, 129, 3,
    { recomputed = { double = 8, single = 38 } })
  local said = closed.mmdit_seconds(shape, of.machine)
  -- a forward and a backward pass of each block, which computes the scores once more
  local once, again = 3.5 * shape.model.blocks, shape.recomputed.double + shape.recomputed.single
  row(rows, run, "s of its products", said.products, ours.product)
  row(rows, run, "s of its attention", said.attention * once / (once + again), ours.attention,
    "blocks that recompute keep what attention gave")
  row(rows, run, "s of what goes by memory", said.stream, ours.stream, nil, { 0.15, 0.25 })
  local encode = said.encode + said.text
  row(rows, run, "s of encoding clips and captions", encode, b.seconds.encode,
    "the formula counts convolutions and products; norms and activations between them go by memory",
    { encode, 1.5 * encode })
  row(rows, run, "s that the slowest of 224 ranks and gathers add", 0,
    b.seconds.slowest + b.seconds.exposed, "the formulas know one rank", { 0.2, 0.5 })
  row(rows, run, "s of 10.2 that were published", 10.2, b.seconds.step, "the rest lies outside the "
    .. "step: waits for clips, evaluation, saving, restarts, or several batches an iteration",
    { 4.5, 5.5 }, published.OPENSORA_2)
end

-- A benchmark that others run: the work per sample, and the time for 16 GPUs to train to the
-- target. The published results are of GB300, whose 8-bit products are as fast as those of B200.
local function mlperf(rows)
  local run = "MLPerf Training 5.1, FLUX.1"
  local function largest(gpus, ...)
    local of, s = mesh.parse(gpus), settings.bake("mlperf/flux1", { ... })
    local cache <close> = compiled.new(of.machine)
    return plan.of(s, { mesh = of, compiled = cache }).largest, s
  end
  local b = largest "8x8xH100"
  row(rows, run, "TFLOP of a sample", 20.3, b.useful / b.batch / 1e12, nil, { 20.3 * 0.97,
    20.3 * 1.03 }, MLPERF)
  local fast, s = largest("2x8xB200", "model.linear=f8", "virtual_ranks=16",
    "bucket_config.square.1=(1.0, 32)")
  published.add(rows, { run = run, what = "minutes of 16 GPUs to the target", published = 135,
    planned = s.steps * fast.seconds.step / 60, low = 90, high = 135, source = MLPERF,
    note = "published of GB300, with evaluations; planned of B200 in 8 bits, without",
    says = "no", table = "goals" })
end

--- Compares every formula with its graph.
---@return moonreel.plan.Published[]
function formulas.rows()
  local rows = {}
  stdit3(rows)
  mmdit_graphs(rows)
  stage1(rows)
  mlperf(rows)
  return rows
end

return formulas
