--- What a run starts from: a checkpoint, other weights, or nothing.
-- Covers: lua/moonreel/trainer/setup.lua lua/moonreel/trainer/origin.lua
-- lua/moonreel/trainer/check.lua
local base = require "moonreel.core.base"
local small_run = require "spec.support.small_run"

local runs = small_run.new()
local bake, train, entries = runs.bake, small_run.train, small_run.entries

describe("trainer.setup", function()
  teardown(function() runs:remove() end)

  it("closes the checkpoint that it resumes from before its first step", function()
    local ok, result, _, dir = train(bake("name=goes-on", "steps=1", "ckpt_every=1"))
    assert.is_true(ok, tostring(result))
    local open, step
    ok, result = train(bake("name=goes-on", "steps=1", "load=" .. dir), function(r)
      open, step = pcall(r.source.names, r.source), r.source.manifest.step
    end)
    assert.is_true(ok, tostring(result))
    assert.same({ false, 1 }, { open, step })
  end)

  it("continues, branches or starts again, as the three options for loading say", function()
    local _, _, _, first = train(bake("steps=4", "ckpt_every=2", "name=load"))
    -- the newest step continues in its directory
    local ok, code, _, dir = train(bake("steps=6", "name=load", "load=" .. first))
    assert.is_true(ok, tostring(code))
    assert.equal(first, dir)
    -- an older step opens a new run that names its parent
    ok, code, _, dir = train(bake("steps=6", "name=load", "load=" .. first .. "@2"))
    assert.is_true(ok, tostring(code))
    assert.are_not.equal(first, dir)
    assert.matches("step%-000000000002$", entries(dir, "start")[1].parent)
    assert.equal(3, entries(dir, "step")[1].step)
    -- everything but the position: steps start at 1, the optimizer's state is kept
    ok, code, _, dir = train(bake("steps=2", "name=load", "load=" .. first,
      "start_from_scratch=true"))
    assert.is_true(ok, tostring(code))
    assert.equal(1, entries(dir, "step")[1].step)
    assert.equal(6, entries(dir, "start")[1].updates)
    -- only the weights, with a fresh optimizer
    ok, code, _, dir = train(bake("steps=2", "name=load", "ckpt_path=" .. first))
    assert.is_true(ok, tostring(code))
    assert.equal(0, entries(dir, "start")[1].updates)
  end)

  it("refuses to discard a position when nothing is loaded", function()
    for words, text in pairs{["start_from_scratch=true"] = "start_from_scratch = true needs "
        .. "load, which is not set: a new run begins with step 0 and its data in any case; try: "
        .. "--load RUN, or leave it out", ["start_step=0"] = "start_step = 0 needs load",
        ["start_epoch=3"] = "start_epoch = 3 needs load"} do
      local ok, problem = train(bake("steps=1", "name=nothing", words))
      assert.is_false(ok)
      assert.equal("MR_E_USAGE", problem.code)
      assert.is_truthy(problem.message:find(words .. ": " .. text, 1, true), problem.message)
    end
    local _, _, _, first = train(bake("steps=1", "name=nothing"))
    local ok, problem = train(bake("steps=1", "ckpt_path=" .. first, "start_from_scratch=true"))
    assert.is_false(ok)
    assert.matches("ckpt_path takes weights alone, and begins with the data", problem.message)
  end)

  it("starts from other weights and records in the journal which parameters they set", function()
    local ckpt = require "moonreel.ckpt"
    local _, _, _, first = train(bake("steps=1", "name=others"))
    local from <close> = ckpt.open(first .. "/ckpt/step-000000000001")
    local rows = {{name = "module.surplus.3", dtype = "f32", shape = {1}, ptr = "\0\0\0\0",
      bytes = 4}}
    for _, name in ipairs(from:names()) do
      if not name:find("^adam_") and not name:find("^ema%.") and not name:find("^master%.")
          and name ~= "final_layer.linear.bias" then
        local info = from:info(name)
        rows[#rows + 1] = {name = "module." .. name, dtype = info.dtype, shape = info.shape,
          ptr = from:read(name), bytes = info.bytes}
      end
    end
    local folder = runs.out .. "/others"
    base.make_dir(folder .. "/model")
    ckpt.write(folder .. "/model/model.safetensors", rows)
    local ok, code, lines, dir = train(bake("steps=1", "name=start", "ckpt_path=" .. folder))
    assert.is_true(ok, tostring(code))
    local text = table.concat(lines, "\n")
    assert.matches("missing +final_layer.linear.bias +1 +not in the file", text)
    assert.matches("unexpected +module.surplus.3 +1 +no parameter of this name", text)
    assert.matches(("%d tensors loaded, 1 missing, 1 unexpected"):format(#rows - 1), text)
    local kept = entries(dir, "weights")[1]
    assert.same({{"final_layer.linear.bias"}, {"module.surplus.3"}, {}, {}, {}}, {kept.missing,
      kept.unexpected, kept.dropped, kept.fresh, kept.resized})
    ok, code = train(bake("steps=1", "name=start", "strict=true", "ckpt_path=" .. folder))
    assert.is_false(ok)
    assert.equal("MR_E_CKPT", code.code)
    assert.matches("1 tensors are missing, the first is 'final_layer.linear.bias'", code.message)
    base.replace_file(folder .. "/config.json", '{"hidden_size": 1152}')
    os.rename(folder .. "/model/model.safetensors", folder .. "/model.safetensors")
    ok, code = train(bake("steps=1", "name=start", "ckpt_path=" .. folder))
    assert.is_false(ok)
    assert.matches("config.json: hidden_size is 1152, but 'module.t_embedder.mlp.2.weight' is "
      .. "%[32,32%]: its axis 0 has 32", code.message)
  end)

  it("refuses to continue under another model, and names the field", function()
    local _, _, _, dir = train(bake("steps=2", "name=other"))
    local ok, err = train(bake("steps=4", "name=other", "model.mlp_ratio=2", "load=" .. dir))
    assert.is_false(ok)
    assert.equal("MR_E_RECIPE", err.code)
    assert.matches("model.mlp_ratio: 4.* when the checkpoint was made, 2", err.message)
  end)
end)
