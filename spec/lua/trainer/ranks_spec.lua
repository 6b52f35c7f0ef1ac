--- One rank resumes from a checkpoint that several ranks wrote.
-- Covers: lua/moonreel/trainer/state.lua lua/moonreel/trainer/setup.lua
local by_ranks = dofile "spec/support/by_ranks.lua"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

local RANKS = 4

describe("a checkpoint of several ranks", function()
  local out = demo_data.scratch()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  local function train(...)
    local s = settings.bake("tiny/demo", { "dataset.data_path=" .. demo_data.path(),
      "outputs=" .. out, "threads=1", "num_workers=1", "warmup_steps=2",
      "model.depth=1", "model.hidden_size=32",
      "model.num_heads=2", "text_encoder.width=32", "model.caption_channels=32", "name=ranks",
      "steps=4", "ckpt_every=2", ... })
    return pcall(trainer.run, s, { write = function() end })
  end

  it("resumes on one rank bit for bit, and an error names a missing file", function()
    assert(train())
    local dir = demo_data.run_dir(out, "ranks")
    assert.is_true(os.rename(ckpt.dir(dir, 4), out .. "/whole"))
    local path = by_ranks.rewrite(dir, 2, RANKS)
    do
      local c <close> = ckpt.open(path)
      assert.equal(RANKS, c.manifest.world.ranks)
      assert.equal(2, c.manifest.run_state.updates)
    end
    local file = path .. "/r00002-of-00004.safetensors"
    assert.is_true(os.rename(file, out .. "/aside"))
    local ok, problem = train("load=" .. dir .. "@2")
    assert.is_false(ok)
    assert.matches("r00002%-of%-00004%.safetensors: missing", tostring(problem))
    assert.is_true(os.rename(out .. "/aside", file))
    assert(train("load=" .. dir .. "@2"))
    local a <close> = ckpt.open(out .. "/whole")
    local b <close> = ckpt.open(ckpt.dir(demo_data.run_dir(out, "ranks"), 4))
    assert.equal(1, b.manifest.world.ranks)
    assert.equal(a.manifest.sampler, b.manifest.sampler)
    assert.same(a:names(), b:names())
    for _, name in ipairs(a:names()) do
      assert.equal(0, a:compare(b, name).differing, name)
    end
  end)
end)
