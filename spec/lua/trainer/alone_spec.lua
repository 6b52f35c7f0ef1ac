--- When one rank is lost while no part of a step has changed the state and every rank holds all of
-- it, the first rank saves it, bit for bit as all ranks would. Nothing is saved when the state may
-- be between two steps, or when each rank holds only a part of it.
-- Covers: lua/moonreel/trainer/saves.lua core/comm/launch.c
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local process = require "moonreel.core.process"

local DIES <const> = 3

local out = demo_data.scratch()
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

-- two ranks that train; rank 1 dies when its step DIES enters a phase
local PROGRAM = [[
local life = require "moonreel.core.life"
local phase, step, at = life.phase, life.step, 0
life.step = function(n) at = n; step(n) end
life.phase = function(name)
  if at == %d and name == %q and os.getenv "MOONREEL_RANK" == "1" then
    io.popen("kill -9 $PPID"):close()
  end
  return phase(name)
end
os.exit(require("moonreel.cli.train").run { %s })
]]

local function train(name, dies_in, ...)
  local words = { "tiny/demo", "dataset.data_path=" .. demo_data.path(),
    "outputs=" .. out, "name=" .. name, "steps=" .. DIES, "ckpt_every=100", "dtype=fp32",
    "warmup_steps=2", "threads=1", "num_workers=1", "model.depth=1", "model.hidden_size=32",
    "model.num_heads=2", "text_encoder.width=32", "model.caption_channels=32", "log_every=100",
    'bucket_config={["32px"]={[1]={1.0,2}}}', ... }
  for i, word in ipairs(words) do
    words[i] = ("%q"):format(word)
  end
  local file <close> = io.open(out .. "/program.lua", "w")
  file:write(PROGRAM:format(DIES, dies_in, table.concat(words, ", ")))
  file:close()
  local done = process.run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh", process.program(), "-n", "2",
    out .. "/program.lua" }, "", { deadline_s = 120 })
  return done.exit, done.output, demo_data.run_dir(out, name)
end

describe("a run of ZeRO 0 that loses a rank", function()
  local zero = "plugin_config.zero_stage=0"

  it("is saved by rank 0 with the same bits as by all ranks", function()
    local code, said, whole = train("whole", "never", zero, "ckpt_every=" .. DIES - 1)
    assert.equal(0, code, said)
    local dir
    code, said, dir = train("lost", "load", zero)
    assert.equal(128 + 9, code, said)
    assert.matches(("step %d is saved by rank 0 alone"):format(DIES - 1), said)
    assert.same({ DIES - 1 }, ckpt.steps(dir))
    local a <close> = ckpt.open(ckpt.dir(whole, DIES - 1))
    local b <close> = ckpt.open(ckpt.dir(dir, DIES - 1))
    assert.equal(a.manifest.sampler, b.manifest.sampler)
    assert.same(a.manifest.run_state, b.manifest.run_state)
    assert.equal(#a:names(), #b:names())
    for _, name in ipairs(a:names()) do
      assert.equal(0, a:compare(b, name).differing, name)
    end
  end)

  it("saves no state that an update may have changed", function()
    local code, said, dir = train("between", "optimizer", zero)
    assert.equal(128 + 9, code, said)
    assert.same({}, ckpt.steps(dir), said)
    assert.is_nil(said:find("rank 0 alone", 1, true), said)
  end)

  it("saves no state of which rank 0 holds only a part", function()
    local code, said, dir = train("parts", "load", "plugin_config.zero_stage=1")
    assert.equal(128 + 9, code, said)
    assert.same({}, ckpt.steps(dir), said)
    assert.is_nil(said:find("rank 0 alone", 1, true), said)
  end)
end)
