--- Runs whose optimizer keeps its moments in 8 bits learn as runs with 32 bits do, and each resumes
-- from the other's checkpoints. MOONREEL_STEPS=1000 trains the demo itself for that many steps.
-- Covers: lua/moonreel/optim/places.lua lua/moonreel/ckpt/coded.lua lua/moonreel/trainer/setup.lua
local demo_data = dofile "spec/support/demo_data.lua"
local fails = dofile "spec/support/fails.lua"
local run = require "moonreel.run"
local settings = require "moonreel.settings"

local LONG = math.tointeger(os.getenv "MOONREEL_STEPS")
local STEPS, LAST = LONG or 24, LONG and 100 or 6
-- of the loss; docs/plan.md has the result of 1,000 steps
local MOST = 0.02

local out = demo_data.scratch()
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

local SMALL = LONG and {} or { "model.depth=1", "model.hidden_size=32", "model.num_heads=2",
  "text_encoder.width=16", "text_encoder.num_heads=1", "text_encoder.rows=64",
  "model.caption_channels=16", 'bucket_config={["32px"]={[1]={1.0,8},[6]={1.0,2}}}' }

local function train(name, steps, ...)
  local words = { "train", "tiny/demo", "dataset.data_path=" .. demo_data.path(),
    "outputs=" .. out, "name=" .. name, "steps=" .. steps, "threads=1", "num_workers=1" }
  table.move(SMALL, 1, #SMALL, #words + 1, words)
  table.move({ ... }, 1, select("#", ...), #words + 1, words)
  return demo_data.moonreel(table.unpack(words))
end

-- mean loss of the last steps
local function loss_of(name)
  local losses, sum = {}, 0
  for entry in run.entries(demo_data.run_dir(out, name)) do
    losses[#losses + 1] = entry.kind == "step" and entry.loss or nil
  end
  for i = #losses - LAST + 1, #losses do
    sum = sum + losses[i]
  end
  return sum / LAST
end

describe("moments in 8 bits", function()
  it("have one of two widths", function()
    fails("MR_E_USAGE", "optim.moment_bits: expected one of 8, 32, got number 16",
      settings.bake, "tiny/demo", { "optim.moment_bits=16" })
  end)

  it("reach the loss of moments in 32 bits", function()
    train("in_32", STEPS)
    -- after some hundred steps any difference grows: another eps has the effect of the codes
    train("other", STEPS, "optim.eps=1.3e-8")
    train("in_8", STEPS, "optim.moment_bits=8")
    local one, other, got = loss_of "in_32", loss_of "other", loss_of "in_8"
    local want = (one + other) / 2
    if LONG then
      print(("loss %.4f and %.4f with 32 bits, %.4f with 8: %+.2f %% of their mean"):format(one,
        other, got, 100 * (got / want - 1)))
    end
    assert.near(1, got / want, MOST)
    assert.is_true(want ~= got)
  end)

  it("are converted to 32 bits and back, with a message", function()
    local dir = demo_data.run_dir(out, "in_32")
    local function on(steps, bits)
      return train("in_32", STEPS + steps, "--load", dir, "optim.moment_bits=" .. bits)
    end
    assert.matches("has moments of 32 bits: they are rounded to 8", on(2, 8))
    local saved <close> = demo_data.newest(out, "in_32")
    assert.is_truthy(saved:info "adam_m8.x_embedder.proj.weight")
    assert.is_nil(saved:info "adam_m.x_embedder.proj.weight")
    assert.not_matches("moments of %d+ bits", on(4, 8))
    assert.matches("has moments of 8 bits: training continues with 32 bits", on(6, 32))
  end)
end)
