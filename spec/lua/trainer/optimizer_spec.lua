--- A run that changes its optimizer. Moments that the new one has too are kept, others start at
-- zero with a bias correction of their own, and both are reported.
-- Covers: lua/moonreel/trainer/state.lua lua/moonreel/trainer/setup.lua
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

local MATRICES <const> = 14 -- of the blocks of a pair

describe("a run with another optimizer than before", function()
  local out = demo_data.scratch()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  -- trains; returns the run directory and the output
  local function train(name, ...)
    local lines = {}
    local code, facts = trainer.run(settings.bake("tiny/demo", {
      "dataset.data_path=" .. demo_data.path(), "outputs=" .. out, "name=" .. name, "threads=1",
      "num_workers=1", "warmup_steps=2", "model.depth=1", "model.hidden_size=32",
      "model.num_heads=2", "text_encoder.width=32", "model.caption_channels=32", "dtype=fp32",
      'bucket_config={["32px"]={[6]={1.0,2}}}', "log_every=100", "lr_schedule=constant", ... }),
      { write = function(line) lines[#lines + 1] = line end })
    assert.equal(0, code)
    return facts.dir, table.concat(lines, "\n")
  end

  -- a resumed run writes to its own folder, so each change starts from a copy
  local function copy(dir, name)
    local to = ("%s/%s"):format(out, name)
    assert(os.execute(("cp -r '%s' '%s'"):format(dir, to)))
    return to
  end

  local function moments(dir)
    local n = 0
    local source <close> = ckpt.newest(dir)
    for _, name in ipairs(source:names()) do
      n = n + (name:find "^adam_v%." and 1 or 0)
    end
    return n
  end

  it("changes from Muon to AdamW and resumes with the same bits", function()
    local muon = train("muon", "optim.type=muon", "steps=4")
    local whole, said = train("whole", "optim.type=adamw", "steps=8", "load=" .. copy(muon, "1"))
    assert.matches(("has no second moments of %d tensors, which Muon updated until now; they "
      .. "begin at zero, and their bias correction with them"):format(MATRICES), said)
    assert.equal(moments(muon) + MATRICES, moments(whole))
    -- stopped and resumed in between: the checkpoint holds the step at which moments started
    local parts, again = train("parts", "optim.type=adamw", "steps=6", "load=" .. copy(muon, "2"))
    assert.matches("second moments", again)
    parts, again = train("parts", "optim.type=adamw", "steps=8", "load=" .. parts)
    assert.is_nil(again:find("second moments", 1, true))
    local a <close> = ckpt.newest(whole)
    local b <close> = ckpt.newest(parts)
    for _, name in ipairs(a:names()) do
      assert.equal(0, a:compare(b, name).differing, name)
    end
  end)

  it("changes from AdamW to Muon and leaves out second moments", function()
    local adamw = train("adamw", "optim.type=adamw", "steps=4")
    local muon, said = train("back", "optim.type=muon", "steps=6", "load=" .. copy(adamw, "3"))
    assert.matches(("Muon uses the first moments of %d matrices of .* and drops their "
      .. "second moments"):format(MATRICES), said)
    assert.equal(moments(adamw) - MATRICES, moments(muon))
  end)

  it("refuses, before its first step, a pattern that fits no matrix or no block",
    function()
      for word, message in pairs {
        ['optim.muon.parameters=["nowhere"]'] = "'nowhere' names no matrix that trains",
        ["optim.muon.block=64"] = "is smaller than a block of 4096 elements",
      } do
        local ok, problem = pcall(train, "refused", "optim.type=muon", "steps=1", word)
        assert.is_false(ok)
        assert.equal("MR_E_RECIPE", problem.code)
        assert.matches(message, problem.message, 1, true)
        assert.is_nil(demo_data.run_dir(out, "refused"))
      end
    end)
end)
