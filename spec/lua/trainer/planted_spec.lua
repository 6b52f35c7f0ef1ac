--- Planted faults: values that are not finite in loss, gradient, weights, moments, averages and
-- frozen weights; flipped bits; far too large learning rates, batches and norms. Each fault is
-- detected, named, and treated as the recipe says. MOONREEL_PLANTED=120 makes this spec longer.
-- Covers: lua/moonreel/trainer/saves.lua lua/moonreel/trainer/anomalies.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local FAULTS = math.tointeger(os.getenv("MOONREEL_PLANTED")) or 11
local SEED = math.tointeger(os.getenv("MOONREEL_SEED")) or 5
local POLICIES <const> = { "log", "skip", "rollback" }
local KNOWN <const>, LAST <const>, EVERY <const> = 150, 172, 5

local out = demo_data.scratch()

local function words(...)
  local list = { "tiny/demo", "dataset.data_path=" .. demo_data.path(), "threads=1",
    "num_workers=1", "outputs=" .. out, "warmup_steps=2", "lr_schedule=constant", "model.depth=1",
    -- second moments of all weights, also of those that each step changes
    "optim.type=adamw",
    "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
    "text_encoder.rows=1024", "model.caption_channels=32", "log_every=1000",
    'bucket_config=recipe.replace{32px: {6: (1, 4)}}', "ckpt_every=" .. EVERY }
  return table.move({ ... }, 1, select("#", ...), #list + 1, list)
end

-- results of runs with these plans on `n` ranks
local function results_of(ranks, plans)
  local given, taken = out .. "/plans.json", out .. "/results.json"
  base.replace_file(given, json.encode(json.array(plans)))
  local list = { "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', process.program() }
  if ranks > 1 then
    table.move({ "-n", tostring(ranks) }, 1, 2, #list + 1, list)
  end
  table.move({ "spec/support/planted_run.lua", given, taken }, 1, 3, #list + 1, list)
  local done = process.run(list, "", { deadline_s = 3600, output_bytes = 1 << 26 })
  assert(base.exists(taken), done.output)
  local results = json.decode(base.read_file(taken))
  os.remove(taken)
  return results
end

-- ---- what is planted ----

-- draws one by number
local function draw(list, what, i)
  return list[1 + math.floor(#list * base.random_uniform(SEED, what, i, 0))]
end

local function between(low, high, what, i)
  return low + math.floor((high - low + 1) * base.random_uniform(SEED, what, i, 0))
end

local BAD <const> = { "nan", "inf", "-inf" }
-- kind -> a function that makes the i-th plan of it
local kinds = {
  function(i)
    return { kind = "loss", value = draw({ "nan", "inf" }, "value", i), steps = 1, what = "skip",
      accumulate = draw({ 1, 2, 3 }, "accumulate", i) }
  end,
  function(i)
    return { kind = "state", region = "ema", value = draw(BAD, "value", i), what = "back" }
  end,
  function(i)
    return { kind = "state", region = draw({ "w", "master" }, "region", i), dtype = "bf16",
      value = draw(BAD, "value", i), what = "back" }
  end,
  function(i) return { kind = "rate", value = 100, steps = between(1, 9, "steps", i),
    what = "spike" } end,
  function(i)
    return { kind = "state", region = draw({ "adam_m", "adam_v" }, "region", i),
      value = draw(BAD, "value", i), what = "back" }
  end,
  function(i)
    return { kind = "loss", value = draw({ 1e3, 1e5, 1e15 }, "value", i), steps = 1,
      what = "spike", accumulate = draw({ 1, 2 }, "accumulate", i) }
  end,
  function(i)
    return { kind = "gradient", value = draw(BAD, "value", i), accumulate = 2, what = "skip" }
  end,
  function(i) return { kind = "loss", value = draw({ "nan", "inf" }, "value", i), steps = 3,
    what = "back" } end,
  function(i) return { kind = "state", region = "frozen", value = draw(BAD, "value", i),
    what = "back" } end,
  function(i)
    return { kind = "norm", value = draw({ 1.15, 1.3, 2 }, "value", i), steps = 50,
      what = "spike" }
  end,
  function(i)
    return { kind = "state", region = "w", dtype = "fp32", value = draw(BAD, "value", i),
      what = "back" }
  end,
}

-- the i-th plan, in a copy of a run that already has enough steps
local function plan_of(i, ranks)
  local plan = kinds[1 + (i - 1) % #kinds](i)
  local dtype, n = plan.dtype or draw({ "fp32", "bf16" }, "dtype", i), plan.accumulate or 1
  plan.policy = draw(POLICIES, "policy", i)
  plan.rank = ranks and between(0, ranks - 1, "rank", i) or 0
  plan.share, plan.micro = base.random_uniform(SEED, "share", i, 0), between(1, n, "micro", i)
  plan.step = between(KNOWN + 2, KNOWN + EVERY * 2, "step", i)
  plan.dir = ("%s/%03d-%s"):format(out, i, plan.kind)
  assert(os.execute(("cp -r '%s' '%s'"):format(demo_data.run_dir(out, dtype), plan.dir)))
  plan.words = words("load=" .. plan.dir, "dtype=" .. dtype, "accumulate=" .. n,
    "steps=" .. (plan.kind == "norm" and KNOWN + 60 or LAST), "spike.action=" .. plan.policy,
    "keep_n_latest=20")
  if plan.policy == "rollback" then
    table.move({ "spike.back_steps=8", "spike.skip_batches=2" }, 1, 2, #plan.words + 1, plan.words)
  end
  return plan
end

-- ---- what must be detected ----

local function entries(dir, from)
  local list = {}
  for entry in run.entries(dir) do
    if (entry.step or 0) >= from or entry.kind == "rollback" then
      list[entry.kind] = list[entry.kind] or {}
      table.insert(list[entry.kind], entry)
    end
  end
  return setmetatable(list, { __index = function() return {} end })
end

-- the hash of the state at its first time at a step
local function hash_at(result, step)
  for _, row in ipairs(result.steps) do
    if row.step == step then
      return row.after
    end
  end
  return result.steps[1].before
end

-- every value of every checkpoint is finite
local function check_saved(dir, place)
  for _, step in ipairs(ckpt.steps(dir)) do
    local c <close> = ckpt.open(ckpt.dir(dir, step))
    for _, name in ipairs(c:names()) do
      assert.equal(0, c:stats(name).nonfinite, ("%s: step %d: %s"):format(place, step, name))
    end
  end
end

local function check_back(result, seen, place)
  assert.equal(1, #seen.rollback, place)
  local back = seen.rollback[1]
  for i = 2, #result.steps do
    local row = result.steps[i]
    if row.step <= result.steps[i - 1].step then
      assert.equal(back.step, row.step - 1, place)
      assert.equal(hash_at(result, back.step), row.before, place .. ": other bits")
      return
    end
  end
  error(place .. ": never back")
end

-- a skipped step changed nothing
local function check_skipped(result, seen, place)
  for _, skip in ipairs(seen.skip) do
    for _, row in ipairs(result.steps) do
      if row.step == skip.step and not row.reported then
        row.reported = true
        assert.equal(row.before, row.after, place .. ": a skipped step has changed the state")
        break
      end
    end
  end
end

local judge = {}

function judge.skip(plan, result, seen, place)
  assert.equal(1, #seen.skip, place)
  assert.equal(plan.step, seen.skip[1].step, place)
  assert.matches("nan", seen.skip[1].reason:gsub("inf", "nan"), place)
  assert.same({ 0, 0 }, { #seen.rollback, #seen.spike }, place)
  check_skipped(result, seen, place)
end

function judge.back(plan, result, seen, place)
  check_back(result, seen, place)
  local at = seen.nonfinite[1]
  -- the fault is one of the state, or three steps report it
  assert.is_true(at ~= nil or #seen.skip >= 3, place)
  assert.is_true(seen.rollback[1].from <= plan.step + math.max(EVERY, 4), place)
  assert.is_true(seen.rollback[1].step < plan.step, place)
  if at then
    local prefix = ({ ema = "ema." })[plan.region]
    assert.matches("^" .. (prefix or ""):gsub("%.", "%%."), at.tensors[1], place)
  end
  check_skipped(result, { skip = table.move(seen.skip, 1, 1, 1, {}) }, place)
end

-- after steps with too large a rate, the loss of the weights may never be finite again
local function is_diverged(plan, result)
  return plan.kind == "rate" and result.exit == 7
end

function judge.spike(plan, result, seen, place)
  if is_diverged(plan, result) then
    assert.is_true(#seen.spike + #seen.skip > 0, place)
    return
  end
  assert.is_true(#seen.spike > 0, place)
  assert.equal(plan.policy, seen.spike[1].action, place)
  assert.is_true(seen.spike[1].step >= plan.step, place)
  assert.is_true(seen.spike[1].step <= plan.step + (plan.kind == "norm" and 20 or 12), place)
  assert.is_true(#seen.spike[1].samples > 0, place)
  if plan.policy == "rollback" then
    check_back(result, seen, place)
  elseif plan.policy == "skip" then
    assert.is_true(#seen.skip > 0, place)
    check_skipped(result, seen, place)
  else
    assert.same({ 0, 0 }, { #seen.rollback, #seen.skip }, place)
  end
end

local function check(plans, ranks)
  for i, result in ipairs(results_of(ranks, plans)) do
    local plan = plans[i]
    local place = json.encode(plan):gsub('"words":%b[],?', "")
    assert.is_true(result.exit == 0 or is_diverged(plan, result),
      place .. "\n" .. tostring(result.problem))
    judge[plan.what](plan, result, entries(plan.dir, KNOWN + 1), place)
    check_saved(plan.dir, place)
    os.execute(("rm -r '%s'"):format(plan.dir))
  end
end

describe("a planted fault", function()
  setup(function()
    print("planted_spec: seed " .. SEED .. " (MOONREEL_SEED)")
    local plans = {}
    for i, name in ipairs { "fp32", "bf16", "two" } do
      plans[i] = { kind = "none", step = 0, rank = 0, words = words("name=" .. name,
        "dtype=" .. (name == "bf16" and name or "fp32"), "steps=" .. KNOWN,
        "virtual_ranks=" .. (name == "two" and 2 or 1), "ckpt_every=" .. KNOWN) }
    end
    results_of(1, plans)
  end)
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("is detected, named and treated as the recipe says", function()
    local plans = {}
    for i = 1, FAULTS do
      plans[i] = plan_of(i)
    end
    check(plans, 1)
  end)

  it("ends a run that has no checkpoint to roll back to, and is not saved", function()
    local plans = {}
    for i, region in ipairs { "w", "ema" } do
      plans[i] = { kind = "state", region = region, value = "nan", share = 0.5, rank = 0, step = i,
        words = words("name=first-" .. region, "steps=20", "dtype=fp32") }
    end
    for i, result in ipairs(results_of(1, plans)) do
      local dir = demo_data.run_dir(out, "first-" .. plans[i].region)
      assert.equal(7, result.exit, result.problem)
      assert.matches("1 values are not finite, in .*; this step is not saved\n  try: ",
        result.problem)
      assert.same({}, ckpt.steps(dir))
      assert.equal(1, #entries(dir, 0).nonfinite)
    end
  end)

  it("at the last step causes a rollback, after which the run ends at its last step", function()
    local plan = { kind = "state", region = "adam_v", value = "inf", share = 0.3, rank = 0,
      step = 18, words = words("name=last", "steps=18", "dtype=fp32") }
    local result = results_of(1, { plan })[1]
    local dir = demo_data.run_dir(out, "last")
    assert.equal(0, result.exit, result.problem)
    assert.equal(18, ckpt.steps(dir)[1])
    assert.same({ 15, 18 }, { entries(dir, 0).rollback[1].step, entries(dir, 0)["end"][1].step })
    check_saved(dir, "last")
  end)

  it("that flips a bit of a rank's copy ends the run, and the error names the rank", function()
    local plans = {}
    for i, region in ipairs { "w", "adam_v" } do
      local dir = ("%s/bit-%d"):format(out, i)
      assert(os.execute(("cp -r '%s' '%s'"):format(demo_data.run_dir(out, "two"), dir)))
      -- in the part that rank 0 owns, whose copy counts as right
      plans[i] = { kind = "bit", region = region, bit = 3 * i, share = 0.05, rank = 1, step =
        KNOWN + 2, every = 1, dir = dir, words = words("load=" .. dir, "dtype=fp32",
        "virtual_ranks=2", "plugin_config.zero_stage=0", "steps=" .. LAST) }
    end
    for i, result in ipairs(results_of(2, plans)) do
      assert.equal(6, result.exit, result.problem)
      local report = entries(plans[i].dir, KNOWN + 1).replicas[1]
      assert.equal(KNOWN + 2, report.step)
      assert.matches("rank 1 has other bits of", report.text)
    end
  end)

  it("of one rank is known to all ranks, at every ZeRO stage", function()
    for _, stage in ipairs(FAULTS > 11 and { 0, 1, 2, 3 } or { 3 }) do
      local plans = {}
      for i, fault in ipairs { { kind = "loss", value = "nan", steps = 1, what = "skip" },
          { kind = "state", region = "adam_m", value = "nan", what = "back" },
          { kind = "state", region = "ema", value = "inf", what = "back" } } do
        plans[i] = fault
        fault.rank, fault.share, fault.micro, fault.policy = 1, 0.4, 1, "log"
        -- rank 1 owns the second half; at stage 0 it has a copy of the first half
        fault.step, fault.dir = KNOWN + 7, ("%s/rank-%d-%d"):format(out, stage, i)
        assert(os.execute(("cp -r '%s' '%s'"):format(demo_data.run_dir(out, "two"), fault.dir)))
        fault.words = words("load=" .. fault.dir, "dtype=fp32", "steps=" .. LAST,
          "virtual_ranks=2",
          "plugin_config.zero_stage=" .. stage, "keep_n_latest=20")
      end
      if stage == 0 then
        -- copies that a rank does not write are compared, but not searched for nan
        plans[3] = nil
      end
      check(plans, 2)
    end
  end)
end)
