-- A resumed run is the same run: design promise 3, reliability P3. MOONREEL_OPTIMIZER=adamw trains
-- with AdamW; the recipe's optimizer is Muon.
-- Covers: lua/moonreel/trainer/state.lua lua/moonreel/trainer/statistics.lua
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local process = require "moonreel.core.process"

local KILLS, STEPS = 20, 60
local SEED = math.tointeger(os.getenv("MOONREEL_SEED")) or 20
local OPTIMIZER = os.getenv("MOONREEL_OPTIMIZER") or "muon"

-- a save on a busy disk takes longer than two steps, and three skipped saves in a row end a run
local function arguments(out, name, ...)
  return {process.program(), "train", "tiny/demo",
    "dataset.data_path=" .. demo_data.path(), "outputs=" .. out,
    "name=" .. name, "optim.type=" .. OPTIMIZER, "steps=" .. STEPS, "warmup_steps=3",
      "ckpt_every=5", "threads=2", "num_workers=1", "log_every=60", "model.depth=1",
      "model.hidden_size=32",
      "model.num_heads=2", "text_encoder.width=32", "model.caption_channels=32", ...}
end

local function train(out, name, ...)
  local result = process.run(arguments(out, name, ...), "",
    {deadline_s = 600, output_bytes = 1 << 20})
  assert.equal(0, result.exit, result.output)
end

describe("a resumed run", function()
  local out = demo_data.scratch()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("has the same bits in two runs without interruption", function()
    train(out, "first")
    train(out, "second")
    assert.matches("equal: %d+ tensors, bit for bit",
      demo_data.moonreel("ckpt", "diff", demo_data.run_dir(out, "first"),
      demo_data.run_dir(out, "second")))
  end)

  it("has the same bits after " .. KILLS .. " kills at random moments", function()
    print("resume_spec: seed " .. SEED .. " (MOONREEL_SEED)")
    -- how long a start takes at the moment; a launch lives up to some steps longer
    local begin = base.now_s()
    train(out, "probe", "steps=1")
    local longest_s, kills, life = 1.6 * (base.now_s() - begin), 0, 0
    while kills < KILLS do
      life = life + 1
      local life_s = longest_s * (0.06 + 0.94 * base.random_uniform(SEED, "kill", life, 0))
      local result = process.run(arguments(out, "killed", "load=latest"),
        "", {deadline_s = life_s, output_bytes = 1 << 20})
      if result.timed_out then
        kills = kills + 1
      else
        -- the run ended before the kills: again from the beginning, with shorter lives
        assert.equal(0, result.exit, result.output)
        os.execute(("rm -r '%s'"):format(demo_data.run_dir(out, "killed")))
        longest_s = longest_s / 2
      end
    end
    train(out, "killed", "load=latest")
    assert.matches("equal: %d+ tensors, bit for bit",
      demo_data.moonreel("ckpt", "diff", demo_data.run_dir(out, "first"),
      demo_data.run_dir(out, "killed")))
    assert.equal(STEPS, require("moonreel.ckpt").steps(demo_data.run_dir(out, "killed"))[1])
  end)
end)
