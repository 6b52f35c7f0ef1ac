--- A plan has the bytes of a run: of the layouts of the trainer's own steps.
-- Covers: lua/moonreel/plan/held.lua lua/moonreel/plan/seconds.lua
local E = require "moonreel.core.exec"
local compiled = require "moonreel.plan.compiled"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local held = require "moonreel.plan.held"
local machine = require "moonreel.plan.machine"
local mesh = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local program = require "moonreel.trainer.program"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"
local unread = require "spec.support.unread"

local out = demo_data.scratch()

local function bake(...)
  return settings.bake("tiny/demo", { "outputs=" .. out, "threads=1",
    "num_workers=1", "warmup_steps=2",
    "model.depth=1", "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
    "model.caption_channels=32", "steps=1", ... })
end

-- a run of these settings, opened and not filled
local function opened(s, f)
  local steps = trainer.steps
  trainer.steps = {}
  for i, step in ipairs(steps) do
    if step[1] == "fill the state" then
      trainer.steps[i] = { "spec", f }
      break
    end
    trainer.steps[i] = step
  end
  local ok, problem = pcall(trainer.run, s, { write = function() end })
  trainer.steps = steps
  assert.is_true(ok, tostring(problem))
end

-- a plan for this machine
local function here(s)
  local m = machine.this(E.device("cpu", s.threads))
  local cache <close> = compiled.new(m)
  return plan.of(s, { mesh = mesh.new(m), compiled = cache })
end

-- a plan for GPUs
local function there(s, gpus)
  local of = mesh.parse(gpus)
  local cache <close> = compiled.new(of.machine)
  return plan.of(s, { mesh = of, compiled = cache })
end

describe("seconds and bytes of a step", function()
  it("include its micro-steps, inputs, share of the update and processes",
    function()
    local s, of = bake("accumulate=3", "num_workers=5", "prefetch=7", "dataset.data_path=none"),
      mesh.parse "4xH100"
    local c <close> = compiled.new(of.machine)
    local open = plan.open(s, { mesh = of, compiled = c })
    local b = open:buckets()[1]
    local row, step = open:row(b), c:step(s, open.models, b)
    local t = row.seconds
    assert.equal(step.memory.inputs / 55e9, t.input)
    assert.equal(open.models.update.seconds / 4, t.update)
    assert.is_true(math.abs(t.step - (3 * t.micro + t.exposed + t.slowest + t.update)) < 1e-12)
    assert.equal(5 * 13e6, row.bytes.decoders)
    local most = 0
    for _, one in ipairs(open.table) do
      most = math.max(most, one.batch * one.frames * 3 * one.height * one.width)
    end
    assert.equal(9 * ((most + 4095) // 4096 * 4096), row.bytes.slabs)
  end)
end)

describe("a plan", function()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("for this machine has the bytes of the run in each bucket, recomputed or not", function()
    local seen = 0
    local data = "dataset.data_path=" .. demo_data.path()
    opened(bake(data), function(r)
      local state, facts = 0, r.loader:plan()
      for _, row in ipairs(r.exec:regions()) do
        state = state + (row.prefix and not row.shared and row.bytes or 0)
      end
      for _, config in ipairs { "grad_checkpoint=false", "grad_checkpoint=true",
          "grad_ckpt_settings={1,0}" } do
        local s, runs = bake(data, config, "ckpt_every=5"), {}
        for _, b in ipairs(facts.buckets) do
          local step = program.new(r.exec, r.pipe, r.feed:shape(b),
            program.config(s, nil, nil, r.fresh))
          runs[plan.bucket_name(b)] = step.prog:memory()
        end
        local kept = 0
        for _, run in pairs(runs) do
          kept = kept + run.inputs + run.results + run.consts
        end
        for _, b in ipairs(here(s).buckets) do
          local run, bytes = runs[plan.bucket_name(b)], b.bytes
          -- programs of all buckets are kept, with that of the update
          assert.is_true(bytes.slots >= kept and bytes.slots < kept + 1e4)
          assert.same(
            { run.arena, run.params, run.state, facts.slabs * facts.slab_bytes, 2 * state },
            { bytes.arena, bytes.weights + bytes.frozen, bytes.gradients + bytes.masters
              + bytes.moments + bytes.averages, bytes.slabs, bytes.snapshots }, config)
          seen = seen + 1
        end
      end
    end)
    assert.equal(6, seen)
  end)

  it("waits for inputs of blocks that are copied to host memory over a slow link", function()
    local s = bake("dataset.data_path=none", "grad_checkpoint=true",
      "grad_ckpt_buffer_size=100000000")
    local function seconds(rate)
      local m = setmetatable({ host = setmetatable({ pcie = rate },
        { __index = machine.open("H100").host }) }, { __index = machine.open "H100" })
      local c <close> = compiled.new(m)
      local p = plan.of(s, { mesh = mesh.new(m), compiled = c })
      local away = p.largest.bytes.pinned
      return p.largest.seconds, c:step(s, plan.open(s, { mesh = mesh.new(m), compiled = c }).models,
        p.largest).memory.pinned, away
    end
    local fast, pinned = seconds(1e15)
    assert.is_true(pinned > 0 and fast.away < fast.forward)
    local slow = seconds(pinned) -- a second in each direction
    assert.near(1, slow.away, 1e-9)
    assert.near(1, slow.forward, 1e-9)
    assert.near(1, slow.backward + slow.recompute, 1e-9)
    assert.near(slow.step - fast.step, slow.micro - fast.micro, 1e-6)
    -- without a buffer nothing is copied
    local plain = bake("dataset.data_path=none", "grad_checkpoint=true")
    assert.equal(0, there(plain, "1xH100").largest.seconds.away)
  end)

  it("of four ranks has the bytes of state of a run's ranks, at each ZeRO stage", function()
    local pipeline = require "moonreel.models.pipeline"
    local ranks, regions = require "moonreel.optim.ranks", require "moonreel.optim.regions"
    -- the first of four, which compiles and never communicates
    local world = { rank = function() return 0 end, size = function() return 4 end,
      op_group = function() return 0 end }
    for stage = 0, 3 do
      local s = bake("plugin_config.zero_stage=" .. stage, "optim.ema_decay=0.9", "model.depth=2",
        "optim.type=adamw")
      local pipe = pipeline.of(s, "bf16", ranks.cut(s, 4))
      local team = ranks.new(pipe.params, world, { stage = ranks.stage(s) })
      local exec <close> = E.plan(pipe.params, { regions = regions.of(s, team, "bf16"),
        facts = { device = "shadow", isa = "base", threads = 1, bf16 = true } })
      local own, p = 0, there(s, "4xH100")
      local b = p.largest.bytes
      for _, row in ipairs(exec:regions()) do
        own = own + (row.shared and 0 or row.bytes)
      end
      -- two buckets at a time: here there is one, which may be freed before the peak
      local all = pipe.params:elements()
      assert.same({ stage >= 3 and 2 * all or 0, stage >= 2 and 4 * all or 0 },
        { p.shares.windows, p.shares.buckets })
      local graph <close> = program.graph(pipe, require("moonreel.trainer.feed").new(s, pipe):shape(
        p.largest), program.config(s, team))
      local prog <close> = exec:compile(graph)
      assert.equal(prog:memory().arena + own, b.arena + b.windows + b.weights + b.frozen
        + b.gradients + b.masters + b.moments + b.averages)
      assert.equal(stage >= 3, b.windows > 0)
      local update = require("moonreel.optim").new(exec, pipe.params, team, true)
      local cache <close> = compiled.new(p.mesh.machine)
      assert.same(update.prog:memory(), plan.open(s, { mesh = p.mesh, compiled = cache }).update)
      assert.equal(own, p.shares.state)
      -- ranks write a checkpoint together, whatever each of them keeps
      assert.is_true(p.shares.saved >= p.saved_bytes / 4
        and p.shares.saved < p.saved_bytes / 4 + 5 * 65536 * 4)
      assert.equal(p.shares.sent, p.largest.sent)
    end
  end)

  it("of ranks that share tokens has the memory, compute and bytes sent by each", function()
    local pipeline, feed = require "moonreel.models.pipeline", require "moonreel.trainer.feed"
    local shares = require "moonreel.plan.shares"
    for _, case in ipairs { { "2", "plugin_config.sp_size=2" },
        { "4", "plugin_config.sp_size=4", "grad_checkpoint=true" },
        { "4", "plugin_config.sp_size=4", "plugin_config.ulysses_size=2", "dtype=fp32" },
        { "4", "plugin_config.sp_size=4", "plugin_config.sequence_parallelism_mode=ring_attn",
          "grad_checkpoint=true", "grad_ckpt_keep_attention=false" } } do
      local s = bake("model.hidden_size=64", "model.num_heads=4", "model.depth=2",
        table.unpack(case, 2))
      local p, sizes = there(s, case[1] .. "xH100"), {}
      local pipe = pipeline.of(s, p.dtype)
      local seq = shares.sequence(s, p.mesh, 4)
      local exec <close> = E.plan(pipe.params, { facts = { device = "shadow", isa = "base",
        threads = 1, bf16 = true }, regions = require("moonreel.optim.regions").gradients() })
      for i, b in ipairs(p.buckets) do
        local graph <close> = program.graph(pipe, feed.new(s, pipe):shape(b),
          program.config(s, nil, seq))
        local prog <close> = exec:compile(graph)
        local sent = shares.sent(prog:times(), seq)
        assert.is_true(sent > 0 and math.abs(b.seconds.exchange_bytes / sent - 1) < 1e-12)
        assert.equal(p.shares.sent + b.seconds.exchange_bytes, b.sent)
        -- and holds what its own graph holds: text is there whole
        assert.equal(prog:memory().arena, b.bytes.arena)
        local parts = require("moonreel.plan.work").parts(p.mesh.machine,
          shares.computed(prog:kinds()), p.dtype)
        assert.same({ parts.forward, parts.recompute, parts.backward },
          { b.seconds.forward, b.seconds.recompute, b.seconds.backward })
        sizes[i] = sent
      end
      assert.is_true(sizes[1] ~= sizes[2] and #sizes == 2)
    end
  end)

  it("counts the reads of a streaming text encoder, on each rank that shares a batch", function()
    local m = setmetatable({ host = setmetatable({ read = 2e9 },
      { __index = machine.open("H100").host }) }, { __index = machine.open "H100" })
    local function encode(ranks, residency)
      local cache <close> = compiled.new(m)
      local p = plan.of(settings.bake("opensora-1.2/stage1", { "model.depth=1",
        "bucket_config=recipe.replace{['144p'] = {[1] = {1.0, 2}}}", "plugin_config.sp_size="
        .. ranks, "text_encoder.residency=" .. residency }),
        { mesh = mesh.new(m, ranks), compiled = cache })
      local bytes = 0
      for _, models in pairs(cache.models) do
        bytes = models.encoders.texts[1].weight_bytes
      end
      return p.slowest.seconds.encode, bytes / 2e9
    end
    for ranks = 1, 2 do
      local seconds, read_s = encode(ranks, "stream")
      assert.is_true(math.abs(seconds / (encode(ranks, "all") + read_s) - 1) < 1e-3)
    end
  end)

  it("lists the fields that a run of it would refuse", function()
    local function notes(...) return table.concat(there(bake(...), "H100").notes, "\n") end
    unread("batch_size", function()
      assert.matches("a run refuses fields that nothing reads yet: batch_size; try: leave them out",
        notes "batch_size=4")
    end)
    assert.is_nil(notes():find("nothing reads", 1, true))
  end)

  it("counts the micro-steps of a rank as a run does", function()
    local function shares(...)
      return there(bake("plugin_config.zero_stage=3", ...), "4xH100").shares
    end
    local once, six = shares(), shares("virtual_ranks=6", "plugin_config.reduce_each=true")
    -- two rounds: both gather and reduce, unless gradients are added up first
    assert.equal(2 * once.sent, six.sent)
    local kept = shares("virtual_ranks=6", "plugin_config.reduce_each=false")
    assert.equal(once.sent * (2 * 4 + 4) // 8, kept.sent)
    assert.equal(once.sent, shares("accumulate=2", "virtual_ranks=2").sent)
  end)

  it("has parts that add up to a step, and kinds that add up to a peak", function()
    local p = there(bake("grad_checkpoint=true"), "8xH100")
    assert.equal(2, #p.buckets)
    for _, b in ipairs(p.buckets) do
      local s, device, host = b.seconds, 0, 0
      assert.is_true(s.forward > 0 and s.recompute > 0 and s.backward > s.recompute)
      assert.equal(s.step, s.encode + s.forward + (s.backward + s.recompute) + s.exchange
        + s.exposed + s.slowest + s.update)
      for _, kind in ipairs(held.kinds) do
        local bytes = b.bytes[kind[1]] or 0
        device = device + (kind[3] == "device" and bytes or 0)
        host = host + (kind[3] == "host" and bytes or 0)
      end
      assert.same({ b.bytes.device, b.bytes.host }, { device, host })
      assert.is_true(b.fits and b.share_of_peak > 0 and b.share_of_peak < 1)
      local live = 0
      for _, one in ipairs(b.live) do
        live = live + one.bytes
      end
      assert.is_true(live <= b.bytes.arena and live > 0.9 * b.bytes.arena)
    end
  end)

  it("of more ranks holds less on each, and communicates", function()
    local s = bake("optim.ema_decay=0.9", "model.depth=2")
    local one, eight, more = there(s, "H100"), there(s, "8xH100"), there(s, "4x8xH100")
    local function bytes(p, kind) return p.largest.bytes[kind] end
    for _, kind in ipairs { "masters", "moments", "averages" } do
      -- chunks of ranks end at whole pages of messages
      local part = bytes(one, kind) / 8
      assert.is_true(bytes(eight, kind) >= part and bytes(eight, kind) < part + 2 * 65536 * 4)
    end
    assert.is_true(bytes(eight, "weights") >= bytes(one, "weights"))
    -- a single rank has its gradients where activations leave room
    assert.equal(0, bytes(one, "gradients"))
    assert.is_true(bytes(one, "arena") >= bytes(eight, "arena") and bytes(one, "arena")
      < bytes(eight, "arena") + bytes(eight, "gradients"))
    assert.same({ 0, 0 }, { one.largest.seconds.exposed, one.largest.seconds.slowest })
    assert.is_true(more.largest.seconds.slowest > eight.largest.seconds.slowest)
    assert.is_true(more.largest.seconds.reduce > eight.largest.seconds.reduce)
    assert.is_true(eight.largest.seconds.reduce > 0 and eight.largest.seconds.gather > 0)
  end)

  it("of a job that does not train has no gradients and no update, and sends nothing", function()
    local trained, report = there(bake(), "H100"), there(bake("job=eval_loss"), "H100")
    local made = there(settings.bake("opensora-1.2/stage1", { "model.depth=1", "job=extract",
      "bucket_config=recipe.replace{['144p'] = {[1] = {1.0, 2}}}" }), "8xH100")
    for _, p in ipairs { report, made } do
      for _, kind in ipairs { "gradients", "masters", "moments", "averages", "snapshots" } do
        assert.equal(0, p.largest.bytes[kind], kind)
      end
      local s = p.largest.seconds
      assert.same({ 0, 0, 0, 0 }, { s.backward, s.update, s.exposed, s.reduce })
    end
    assert.equal(trained.largest.bytes.weights, report.largest.bytes.weights)
    assert.is_true(report.largest.bytes.arena < trained.largest.bytes.arena / 2)
    -- a batch is evaluated at ten times
    for i, b in ipairs(report.buckets) do
      local ratio = b.seconds.forward / trained.buckets[i].seconds.forward
      assert.is_true(ratio > 5 and ratio < 10.5, ratio)
    end
    -- or at given times, or at one of them in turn
    for passes, words in pairs { [3] = { "eval_timesteps={0, 0.5, 1}" },
        [1] = { "eval_timesteps={0, 0.5, 1}", "eval_in_turn=true" } } do
      local other = there(bake("job=eval_loss", table.unpack(words)), "H100")
      assert.near(report.largest.seconds.forward * passes / 10, other.largest.seconds.forward, 1e-9)
    end
    assert.same({ 0, 0, 0 }, { made.largest.bytes.weights, made.largest.bytes.arena,
      made.largest.seconds.forward })
  end)

  it("leaves out programs of other buckets that do not fit, and reports it", function()
    local s = bake()
    local full = there(s, "H100").largest
    local tight = setmetatable({ memory_bytes = full.bytes.device - 1 },
      { __index = machine.open "H100" })
    local cache <close> = compiled.new(tight)
    local p = plan.of(s, { mesh = mesh.new(tight), compiled = cache })
    local notes = table.concat(p.notes, "\n")
    assert.is_true(p.largest.fits and p.largest.total < full.total)
    assert.matches("programs of all buckets do not fit together with the largest; try: "
      .. "programs_bytes",
      notes)
  end)

  it("names the machine of its rates, and the rates that were not measured", function()
    local function report(given)
      local m = setmetatable(given, { __index = machine.open "H100" })
      local cache <close> = compiled.new(m)
      return table.concat(plan.of(bake(), { mesh = mesh.new(m), compiled = cache }).notes, "\n")
    end
    local plain = report {}
    -- its file has the origin of each figure
    assert.matches("%d+ %% of the longest step depend on assumed figures %(.*rate.stream %d+ "
      .. "%%.*%); try: %-%-why", plain)
    assert.is_nil(plain:find("is assumed", 1, true) or plain:find("rates by", 1, true)
      or plain:find("measured without", 1, true))
    assert.matches("H100: rates by NVIDIA data sheet", report { origin = false })
    assert.matches("sources are assumed to be as large as their bucket", plain)
    assert.matches("H100: rate.text is assumed: 5e%+14 by its peak.bf16", report { assumed = { {
      field = "rate.text", value = 5e14, of = "peak.bf16" } } })
    -- of a processor, too
    assert.matches("decode_rate is assumed", report { assumed = { { field = "decode_rate",
      value = 1e8 } }, cpu = E.device("cpu", 1):facts(), program_bytes = 1e6 })
    assert.matches("H100 was measured without accumulate, add, .*cast and %d+ others in bf16: "
      .. "these have the rates of similar ops", report { ops = {} })
  end)

  it("counts the cores that decode by the sources of an index", function()
    local function cores(pixels)
      local of = mesh.parse "H100"
      local cache <close> = compiled.new(of.machine)
      local survey = pixels and { rows = 8, index = "x.mrx", dropped = {}, buckets = {
        { resolution = "32px", frames = 6, height = 32, width = 32, batch = 8, samples = 6,
          pixels = pixels },
        { resolution = "32px", frames = 6, height = 40, width = 24, batch = 8, samples = 2,
          pixels = 2 * pixels } } }
      local p = plan.of(bake(), { mesh = of, compiled = cache, survey = survey })
      for _, b in ipairs(p.buckets) do
        if b.frames == 6 then
          return b.decode_cores, table.concat(p.notes, "\n")
        end
      end
    end
    local alike = cores()
    local sources, notes = cores(1280 * 720)
    -- a quarter of them twice as large
    local wanted = alike * 1.25 * 1280 * 720 / (32 * 32)
    assert.is_true(math.abs(sources / wanted - 1) < 1e-9, sources)
    assert.is_nil(notes:find("sources are assumed", 1, true))
  end)

  it("reports what does not fit, and for what is missing the value used instead", function()
    local small = setmetatable({ memory_bytes = 5e9 }, { __index = machine.open "H100" })
    local cache <close> = compiled.new(small)
    local s = settings.bake("opensora-1.2/lambda/stage1", {
      "bucket_config=recipe.replace{['144p'] = {[51] = {1.0, 2}}}", "model.depth=1",
      "text_encoder.residency=all" })
    local p = plan.of(s, { mesh = mesh.new(small), compiled = cache })
    assert.equal(1, #p.buckets)
    assert.is_false(p.largest.fits)
    assert.is_true(p.largest.bytes.encoders > 9.5e9 and p.largest.seconds.encode > 0)
    assert.matches("captions are planned with all of their 300 tokens", table.concat(p.notes, "\n"))
  end)

  it("of settings that no run accepts is refused like the run", function()
    fails("MR_E_RECIPE", "vae.type = dct runs within the training step, so no cache", there,
      settings.bake("tiny/demo", { "job=extract" }), "H100")
    fails("MR_E_RECIPE", "job = eval_loss runs on one GPU, not on 2 x 8 H100; try: %-%-gpus H100",
      there, bake("job=eval_loss"), "2x8xH100")
    fails("MR_E_RECIPE", "epochs = 0 and steps = 0: nothing says when to stop", there,
      settings.bake("tiny/demo", { "epochs=0", "steps=0" }), "H100")
  end)

  it("of a recipe that names no shapes is refused with an example that can be planned", function()
    for recipe, words in pairs { ["opensora-1.2/sample"] = { "model.depth=1" },
        ["opensora-2.0/inference/256px"] = { "model.depth=1", "model.depth_single_blocks=1",
          "condition_config={t2v=1}" },
        ["opensora-2.0/inference/high_compression"] = { "model.depth=1",
          "model.depth_single_blocks=1", "condition_config={t2v=1}" } } do
      local good, problem = pcall(there, settings.bake(recipe, words), "H100")
      assert.is_false(good)
      local example = tostring(problem):match "bucket_config is not set.*; try: (.*), or the "
      words[#words + 1] = example:gsub(" = ", "=", 1)
      assert.equal(1, #there(settings.bake(recipe, words), "H100").buckets)
    end
    -- a part of recipes has no models either
    fails("MR_E_RECIPE", "vae.type is not set", there, settings.bake "mixins/bump", "H100")
  end)
end)
