--- A graph compiled without a device has the layout of one that runs: the fixed step, and all
-- buckets of each tiny recipe.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local cuts = require "moonreel.bench.cuts"
local compiled = require "moonreel.plan.compiled"
local machine = require "moonreel.plan.machine"
local pipeline = require "moonreel.models.pipeline"
local plan = require "moonreel.plan"
local mesh = require "moonreel.plan.mesh"
local process = require "moonreel.core.process"
local program = require "moonreel.trainer.program"
local demo_data = dofile "spec/support/demo_data.lua"
local feed = require "moonreel.trainer.feed"
local folder = require "spec.support.folder"
local regions = require "moonreel.optim.regions"
local settings = require "moonreel.settings"
local step = require "moonreel.bench.step"
local stdit3 = require "moonreel.models.stdit3"

-- bytes of a program that its layout determines
local function layout(prog)
  local m = prog:memory()
  return { m.arena, m.bound, m.workspace, m.inputs, m.results, m.consts, m.params, m.state }
end

describe("a step compiled without a device", function()
  local device = E.device("cpu", 2)

  it("has the bytes of the fixed step, with and without grad_checkpoint", function()
    local params = G.params("bf16")
    local net = stdit3.new(params, cuts.all.stdit3.model)
    params:seal()
    local run <close> = E.new(device, params, { regions = regions.gradients() })
    local planned <close> = E.plan(params, { regions = regions.gradients(),
      facts = device:facts() })
    local shape, arenas = cuts.all.stdit3, {}
    for i, config in ipairs(step.settings) do
      local graph <close> = step.graph(params, net, shape, config)
      local real <close> = run:compile(graph)
      local report <close> = planned:compile(graph)
      assert.same(layout(real), layout(report))
      arenas[i] = real:memory().arena
    end
    assert.is_true(arenas[2] < 0.8 * arenas[1])
  end)

  -- compares what a run would compile for each bucket of settings with its plan
  local function check(s)
    local m = machine.this(device)
    local cache <close> = compiled.new(m)
    local open = plan.open(s, { mesh = mesh.new(m), compiled = cache })
    local pipe = pipeline.of(s, open.models.dtype)
    local run <close> = E.new(device, pipe.params, {
      regions = regions.of(s, nil, nil, open.models.fresh, pipe.params) })
    local inputs, buckets = feed.new(s, pipe), open:buckets()
    for _, b in ipairs(buckets) do
      local graph <close> = program.graph(pipe, inputs:shape(b), program.config(s, nil, nil,
        open.models.fresh))
      local real <close> = run:compile(graph)
      local report = cache:step(s, open.models, b).memory
      local got = real:memory()
      for _, kind in ipairs { "arena", "workspace", "inputs", "results", "consts", "params",
          "state" } do
        assert.equal(got[kind], report[kind], kind .. " of " .. plan.bucket_name(b))
      end
    end
    return #buckets
  end

  it("has the bytes of the demo at its full size, recomputed or not", function()
    for _, value in ipairs { "false", "true" } do
      assert.equal(2, check(settings.bake("tiny/demo", { "threads=2",
        "grad_checkpoint=" .. value })))
    end
  end)

  it("has the bytes of a video autoencoder that trains", function()
    for _, stage in ipairs { "pictures", "frames" } do
      assert.equal(2, check(settings.bake("tiny/vae", {}, { stage = stage })), stage)
    end
  end)

  it("has the bytes of each stage of tiny/opensora12", function()
    local dir = folder.new()
    finally(function() dir:remove() end)
    local weights = dir.path .. "/weights"
    demo_data.moonreel("datasets/demo/build_weights.lua", weights)
    local outer = settings.bake("tiny/opensora12", {})
    for _, stage in ipairs(outer.stages) do
      assert.equal(2, check(settings.bake("tiny/opensora12", {
        "vae.from_pretrained=" .. weights .. "/vae",
        "text_encoder.from_pretrained=" .. weights .. "/t5" }, { stage = stage.name })), stage.name)
    end
  end)
end)

describe("a step planned for a GPU that this machine lacks", function()
  -- builds with sanitizers have no emulated GPU
  local emulated = base.exists((process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so")))

  it("has the bytes of the GPU's own kernels, or up to 0.8 GB more", function()
    if not emulated then
      return pending "no emulated GPU"
    end
    local apart, device = machine.open "H100", E.device("cudaemu", 1)
    local there = setmetatable({ cpu = device:facts() }, { __index = apart })
    local s, bytes = settings.bake("opensora-1.2/lambda/stage1", { "model.depth=6" }), {}
    for i, m in ipairs { apart, there } do
      local cache <close> = compiled.new(m)
      local models = cache:of(s)
      bytes[i] = {}
      for k, b in ipairs { { "1024", 1, 1024, 1024, 36 }, { "240p", 51, 240, 426, 20 },
          { "144p", 408, 144, 256, 6 } } do
        local memory = cache:step(s, models, { resolution = b[1], frames = b[2], height = b[3],
          width = b[4], batch = b[5] }).memory
        bytes[i][k] = { arena = memory.arena, workspace = memory.workspace }
      end
    end
    for k, planned in ipairs(bytes[1]) do
      local real = bytes[2][k]
      assert.not_equal(planned.workspace, real.workspace)
      -- the workspace of one step, for any number of blocks
      assert.is_true(planned.arena >= real.arena, k)
      assert.is_true(planned.arena - real.arena < 0.8e9, k)
    end
  end)
end)

describe("programs of the encoders", function()
  it("are rated once, for any number of buckets that run them", function()
    local work = require "moonreel.plan.work"
    local parts, asked = work.parts, 0
    finally(function() work.parts = parts end)
    work.parts = function(...)
      asked = asked + 1
      return parts(...)
    end
    local s = settings.bake("opensora-1.2/stage1", { "model.depth=1" })
    local cache <close> = compiled.new(machine.open "H100")
    local models, encode = cache:of(s), {}
    for batch = 1, 3 do
      local before = asked
      encode[batch] = cache:step(s, models, { resolution = "144p", frames = 51, height = 144,
        width = 256, batch = batch }).parts.encode
      -- the step itself, and with the first one the encoders of its clips and captions
      assert.equal(batch > 1, asked - before == 1)
    end
    assert.is_true(encode[3] > encode[1])
  end)
end)

describe("graphs", function()
  it("are built once for settings that differ only in encoders", function()
    local graph, built = program.graph, 0
    finally(function() program.graph = graph end)
    program.graph = function(...)
      built = built + 1
      return graph(...)
    end
    local cache <close> = compiled.new(machine.open "H100")
    local b = { resolution = "144p", frames = 51, height = 144, width = 256, batch = 1 }
    local function planned(name, ...)
      local s = settings.bake(name, { "model.depth=1", ... })
      return cache:step(s, cache:of(s), b)
    end
    local one = planned "opensora-1.2/stage1"
    local other = planned("opensora-1.2/lambda/stage1", "load_text_features=true")
    assert.equal(1, built)
    assert.equal(one.parts.backward, other.parts.backward)
    assert.equal(0, other.parts.read)
    assert.is_true(one.parts.read + one.parts.encode > other.parts.read + other.parts.encode)
    planned("opensora-1.2/stage1", "model.qk_norm=false")
    assert.equal(2, built)
  end)

  it("with an adversary differ from those without one", function()
    local cache <close> = compiled.new(machine.open "H100")
    local alone = cache:of(settings.bake "opensora-2.0/vae/train_dc_ae")
    local judged = cache:of(settings.bake "opensora-2.0/vae/train_dc_ae_disc")
    assert.is_true(judged.trained > alone.trained)
  end)
end)
