--- Published runs, compared with the formulas and the simulator here. A row states how far the two
-- may differ. If a published value includes more than the plan (evaluation, other batches, lost
-- time), the row says so and checks the range that the reference gives. Ref: reference plan 5, 7
-- and 8.
-- @module moonreel.plan.published
local closed = require "moonreel.plan.closed"
local collective = require "moonreel.plan.collective"
local machine = require "moonreel.plan.machine"
local simulate = require "moonreel.plan.simulate"

local published = {}

--- Source of the seconds of Open-Sora 2.0.
published.OPENSORA_2 = "Open-Sora 2.0 report (arXiv 2503.09642), table of stages"

local TORCHTITAN = "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md"
local TORCHTITAN_H200 =
  "pytorch/torchtitan benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md"

--- A published number compared with ours.
---@class moonreel.plan.Published
---@field run string
---@field what string
---@field published number
---@field planned number
---@field low number     planned must be between these
---@field high number
---@field ok boolean     it is
---@field reproduced string  "yes"; "no": the published number is outside the planned range; "off":
---   the planned number is; "fitted": this row determined a value of the model; "not planned": both
---   numbers come from the publication
---@field table string "runs"; "forms": graphs compared with closed forms; "goals": what the machine
---   could do, if the published run did less or another machine ran
---@field source string
---@field note string|nil

--- One published number compared with ours.
---@param rows moonreel.plan.Published[]  the list to which it is added
---@param one table  run, what, published, planned, low, high, source; note; says: "fitted", "not
---   planned" or nil; table: nil: "goals" if the published number is not reached, else "runs"
function published.add(rows, one)
  local reached = one.published >= one.low and one.published <= one.high
  one.ok = one.planned >= one.low and one.planned <= one.high
  one.reproduced = not one.ok and "off" or one.says or reached and "yes" or "no"
  one.says, one.table = nil, one.table or reached and "runs" or "goals"
  rows[#rows + 1] = one
end

local function row(rows, run, what, given, planned, low, high, source, note, says)
  published.add(rows, { run = run, what = what, published = given, planned = planned, low = low,
    high = high, source = source, note = note, says = says })
end

local function opensora_2(rows)
  local h200, run = machine.open "H200", "Open-Sora 2.0 stage 1, 224 H200"
  local recomputed = { double = 8, single = 38 }
  local function shape(frames, batch)
    return closed.mmdit_shape(256, frames, batch, { recomputed = recomputed })
  end
  local worst, largest = 0, 0
  for frames, batch in pairs { [1] = 45, [33] = 12, [65] = 6, [97] = 4, [129] = 3 } do
    local s = shape(frames, batch)
    worst = math.max(worst, closed.mmdit_seconds(s, h200).total)
    largest = math.max(largest, closed.mmdit_bytes(s, 224))
  end
  row(rows, run, "seconds of an iteration", 10.2, worst, 4, 5, published.OPENSORA_2,
    "2,240 GPU days over 85,000 iterations; half of the wall clock lies outside these parts, or an "
    .. "iteration holds several batches")
  row(rows, run, "GB at the peak of its largest bucket", 140, largest / 1e9, 90, 140,
    published.OPENSORA_2, "an upper bound: the card has 140 GB, and the published batches equalise "
    .. "seconds")
  local long = shape(129, 3)
  local cached = closed.mmdit_seconds(long, h200, { cached = true }).total
  row(rows, run, "% of the peak, 129 frames", 38.19,
    100 * closed.mmdit_operations(long) / cached / h200.peak.bf16, 35.2, 41.2, published.OPENSORA_2,
    "encoders not counted")
  local large = closed.mmdit_shape(768, 129, 2,
    { sequence = 4, recomputed = { double = 19, single = 38 } })
  row(rows, "Open-Sora 2.0 stage 2, SP 4", "seconds of an iteration", 53,
    closed.mmdit_seconds(large, h200).total, 15, 31, published.OPENSORA_2,
    "768 px, 129 frames, batch 2; a third of it is video encoding that every rank repeats")
end

-- Llama 3.1 8B as torchtitan shards it: 32 groups of one layer, and one group of everything else
-- (embedding, norm, output), which is gathered once, in bf16, and reduced after the backward pass
local LAYERS, LAYER, REST = 32, 218.1e6, 1050.7e6

-- Events of its step. A layer is gathered while the one before it runs, in both passes; the last
-- layer stays gathered. Gradients are reduced in f32. `bytes`: of a gathered element of a layer
local function llama_events(m, gpus, compute_s, bytes)
  local group, events, ends = { gpus = 8, nodes = gpus // 8 }, {}, {}
  local function add(stream, seconds, ...)
    events[#events + 1] = { stream = stream, seconds = seconds, after = { ... } }
    return #events
  end
  local function tell(size, ...)
    return add("comm_inter", collective.flat(m, group, size), ...)
  end
  -- half of the rest is the output, which multiplies
  local layer_s = compute_s * LAYER / (LAYERS * LAYER + REST / 2)
  local output_s = compute_s - LAYERS * layer_s
  local rest = tell(2 * REST)
  local gathered = tell(bytes * LAYER)
  for k = 1, LAYERS do
    local following = k < LAYERS and tell(bytes * LAYER, ends[k - 1] or rest)
    ends[k], gathered = add("compute", layer_s / 3, gathered), following
  end
  ends[LAYERS + 1] = add("compute", output_s)
  for k = LAYERS, 1, -1 do
    local following = k > 1 and tell(bytes * LAYER, ends[k + 1])
    ends[k] = add("compute", layer_s * 2 / 3, gathered or nil)
    tell(4 * LAYER, ends[k])
    gathered = following
  end
  tell(4 * REST, ends[1])
  return events
end

local function llama_seconds(m, gpus, compute_s, bytes)
  return simulate.run(llama_events(m, gpus, compute_s * simulate.slowest(gpus, simulate.SIGMA),
    bytes), m.communication_share).seconds
end

-- the share in % of the rate of few GPUs that many GPUs keep; compute is fitted to the published
-- rate of the few
local function kept(m, tokens_s, few, many, bytes)
  local step_s = 2 * 8192 / tokens_s
  local compute_s = step_s
  for _ = 1, 30 do
    compute_s = compute_s * step_s / llama_seconds(m, few, compute_s, bytes)
  end
  return 100 * step_s / llama_seconds(m, many, compute_s, bytes)
end

-- Scalings are published to a tenth of a point and compared to a point. All of them together
-- determined how far GPUs differ.
local function scaling(rows, run, what, given, planned, source, note)
  row(rows, run, "% of the rate kept from " .. what, given, math.floor(planned * 10 + 0.5) / 10,
    given - 1.01, given + 1.01, source, note, "fitted")
end

local function torchtitan(rows)
  local h100, h200 = machine.open "H100", machine.open "H200"
  for _, r in ipairs { { "bf16", 5762, 97.3, 2 }, { "compiled", 6667, 97.7, 2 },
      { "compiled, FP8", 8532, 98.2, 1 } } do
    local name, tokens_s, given, bytes = table.unpack(r)
    scaling(rows, "torchtitan Llama 8B, H100", "8 to 128 GPUs, " .. name, given,
      kept(h100, tokens_s, 8, 128, bytes), TORCHTITAN)
  end
  scaling(rows, "torchtitan Llama 8B, H200", "32 to 64 GPUs, FP8", 98.3,
    kept(h200, 10938, 32, 64, 1), TORCHTITAN_H200,
    "the difference between GPUs, 1.92 %, is the value in the 1 to 2 % of healthy machines that "
      .. "fits the four scalings best: the two in FP8 are then a point off, one below, one above")
end

-- the last checkpoints of the reproduction's stages give the number of steps
local TUTORIAL = "recipes/opensora-1.2/lambda/tutorial.lua"
local tutorial_steps = { stage1 = 2210, stage2 = 7099, stage3 = 14778, stage4 = 2100,
  stage5 = 3300, stage6 = 2900 }
local TUTORIAL_STEP_S, TUTORIAL_GPUS = 12, 192

--- Source of the numbers of steps in the reproduction's stages.
published.STEPS_SOURCE = "names of the published checkpoints of Lambda's tutorial"

--- Steps that a published run of a recipe took.
---@param settings table
---@param stage string|nil
---@return integer|nil
function published.steps(settings, stage)
  return tostring(settings.recipe) == TUTORIAL and stage and tutorial_steps[stage] or nil
end

local function lambda(rows)
  local run, steps = "Lambda's reproduction of Open-Sora 1.2, 192 H100", tutorial_steps
  local hours = TUTORIAL_STEP_S * TUTORIAL_GPUS / 3600
  row(rows, run, "GPU hours of stages 1 to 3", 18000,
    (steps.stage1 + steps.stage2 + steps.stage3) * hours, 18000 * 0.85, 18000 * 1.15,
    "Lambda Labs tutorial; " .. published.STEPS_SOURCE,
    "steps by the names of its checkpoints, 12 s each, for which its bucket tables are made: no "
    .. "planned second is used", "not planned")
end

--- All published runs, each with what is planned for it.
---@return moonreel.plan.Published[]
function published.rows()
  local rows = {}
  lambda(rows)
  opensora_2(rows)
  torchtitan(rows)
  return rows
end

return published
