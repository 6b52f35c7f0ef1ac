--- What a resume keeps of the command line of the run that it continues.
local resume = require "moonreel.settings.resume"
local settings = require "moonreel.settings"

describe("settings.resume", function()
  local command = { name = "train", overrides = true, short_fields = { n = "nproc_per_node" } }

  -- the kept arguments, as typed
  local function taken(earlier, now, recipe)
    local words = require "moonreel.settings.words"
    local given = words.parse(now, command).overrides
    local old = settings.bake("tiny/demo", words.parse(earlier, command).overrides)
    -- in a file next to a checkpoint
    old = settings.from_json(old:to_json(), "x")
    local out = {}
    for i, one in ipairs(resume.taken(old, settings.bake(recipe or "tiny/demo", given), given,
        command)) do
      out[i] = one.argument
    end
    return out
  end

  it("keeps arguments that are not given again, in order, under any spelling", function()
    assert.same({ "seed=3", "--name a b" },
      taken({ "--lr", "0.5", "seed=3", "--name", "a b" }, { "optim.lr=2" }))
    assert.same({ "-n 1", "--no-grad-checkpoint" },
      taken({ "-n", "1", "--no-grad-checkpoint" }, {}))
    -- the last of two arguments for one field
    assert.same({ "lr=2" }, taken({ "lr=1", "lr=2" }, {}))
  end)

  it("keeps arguments that merge with others", function()
    local maps = { "mask_ratios={random=1}", "mask_ratios={identity=0.5}", "betas.1=0.8" }
    assert.same({ maps[1], maps[2], "optim." .. maps[3] },
      taken({ maps[1], maps[2], "optim." .. maps[3] }, { "optim.betas.2=0.7" }))
  end)

  it("keeps no argument about where to start, or of another recipe", function()
    assert.same({}, taken({ "ckpt_path=x", "--load=y", "start_step=0", "start_epoch=0",
      "model.from_pretrained=z" }, { "load=w" }))
    assert.same({}, taken({ "lr=1" }, {}, "opensora-1.2/stage1"))
  end)
end)
