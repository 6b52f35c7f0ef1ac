--- Checkpoints of schema 1 open and resume.
-- Covers: lua/moonreel/trainer/state.lua
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local json = require "moonreel.core.json"
local base = require "moonreel.core.base"
local schema1 = dofile "spec/support/schema1.lua"
local settings = require "moonreel.settings"
local state = require "moonreel.trainer.state"
local trainer = require "moonreel.trainer"

local out = demo_data.scratch()

local function train(...)
  local s = settings.bake("tiny/demo", { "dataset.data_path=" .. demo_data.path(),
    "outputs=" .. out, "threads=1", "num_workers=1", "warmup_steps=2",
    "model.depth=1", "model.hidden_size=32",
    "model.num_heads=2", "text_encoder.width=32", "model.caption_channels=32", "name=state", ... })
  assert.equal(0, trainer.run(s, { write = function() end }))
end

describe("a checkpoint of schema 1", function()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("opens with every recorded byte", function()
    local c <close> = ckpt.open "spec/core/ckpt/schema1"
    local plain <close> = ckpt.open "spec/core/ckpt/schema1/r00000-of-00001.safetensors"
    c:verify()
    assert.equal(41, c.step)
    assert.equal(41, c.manifest.run_state.updates)
    assert.same(plain:names(), c:names())
    for _, name in ipairs(c:names()) do
      assert.same(plain:info(name), c:info(name))
      assert.equal(plain:read(name), c:read(name))
    end
    -- what other specs rewrite is equal to what was written then
    local recorded = json.decode(base.read_file "spec/core/ckpt/schema1/MANIFEST.json")
    recorded.self = nil
    assert.same(json.encode(recorded), json.encode(schema1.manifest "spec/core/ckpt/schema1"))
  end)

  it("resumes as one of schema 2 does, bit for bit, and reads each block once", function()
    train("steps=4", "ckpt_every=2")
    local dir = demo_data.run_dir(out, "state")
    assert.same({ 4, 2 }, ckpt.steps(dir))
    assert.is_true(os.rename(ckpt.dir(dir, 4), out .. "/whole"))
    schema1.rewrite(ckpt.dir(dir, 2))
    local load, read, size = state.load, nil, nil
    function state.load(run, params, source)
      local before = source:bytes_read()
      load(run, params, source)
      read, size = source:bytes_read() - before, source.bytes
      assert.equal(1, source.manifest.schema)
    end
    local ok, problem = pcall(train, "steps=4", "ckpt_every=2", "load=" .. dir)
    state.load = load
    assert.is_true(ok, tostring(problem))
    assert.is_true(read <= size, ("%d bytes read of %d"):format(read, size))
    local a <close> = ckpt.open(out .. "/whole")
    local b <close> = ckpt.open(ckpt.dir(dir, 4))
    assert.equal(2, b.manifest.schema)
    assert.equal(a.manifest.sampler, b.manifest.sampler)
    assert.same(a:names(), b:names())
    for _, name in ipairs(a:names()) do
      assert.equal(0, a:compare(b, name).differing, name)
    end
  end)
end)
