--- The cost of an optimizer in a planned run: Muon compared with AdamW, of STDiT3-XL on 192 GPUs.
local compiled = require "moonreel.plan.compiled"
local mesh = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local settings = require "moonreel.settings"

local function planned(optimizer)
  local of = mesh.parse "24x8xH100"
  local cache <close> = compiled.new(of.machine)
  return plan.of(settings.bake("opensora-1.2/stage1", { "optim.type=" .. optimizer,
    "bucket_config=recipe.replace{['480p'] = {[1] = {1.0, 8}}}" }), { mesh = of, compiled = cache })
end

describe("a plan of an optimizer", function()
  it("counts the products of Muon, at most 1 % of a step of few pictures", function()
    local adamw, muon = planned "adamw", planned "muon"
    local before, seconds = adamw.slowest.seconds, muon.slowest.seconds
    assert.is_true(seconds.update > before.update)
    assert.is_true(seconds.update < 0.01 * seconds.step, seconds.update / seconds.step)
    assert.is_true(seconds.step > before.step)
    -- almost all weights have no second moment
    assert.near(0.5, muon.shares.regions.moments / adamw.shares.regions.moments, 0.03)
  end)
end)
