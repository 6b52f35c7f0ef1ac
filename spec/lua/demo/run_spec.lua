local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local printed = require "spec.support.printed"

describe("datasets.demo.run", function()
  local here = os.tmpname()
  os.remove(here)

  -- runs a script of datasets/demo by its command line; returns its output
  local function script(name, ...)
    local outer = _G.arg
    _G.arg = { [0] = "datasets/demo/" .. name, ... }
    local ok, text, result = pcall(printed, dofile, "datasets/demo/" .. name)
    _G.arg = outer
    if not ok then
      error(text, 0)
    end
    return result, text
  end

  teardown(function() os.execute("rm -rf '" .. here .. "'") end)

  it("trains, renders and measures, and fails its conditions after eight steps", function()
    base.make_dir(here)
    script("build.lua", here .. "/clips")
    require("moonreel.data").ingest(here .. "/clips/demo.csv", here .. "/demo.mrx")
    local code, report = script("run.lua", "--json", "--out", here .. "/result",
      "outputs=" .. here .. "/outputs",
      "data_path=" .. here .. "/demo.mrx", "steps=8", "threads=1", "num_workers=1",
        "num_sampling_steps=2", "cfg_scale=1", "sampling.seeds=[5]")
    assert.equal(1, code)
    local result = json.decode(report)
    assert.is_false(result.ok)
    assert.equal(8, result.steps)
    assert.same({ clips = 300, colour = 300, direction = 300 }, result.measure_on_training)
    assert.equal(16, #result.prompts)
    assert.equal(8, result["held-out"].of)
    local loss = result.held_out_loss
    assert.same({ 48, 10, 10, 10 }, { loss.clips, #loss.times, #loss.losses, #loss.errors })
    for i, error in ipairs(loss.errors) do
      assert.is_true(error > 0 and error < 0.2 * loss.losses[i])
    end
    local files = {}
    for _, name in ipairs(base.list_dir(here .. "/result")) do
      files[name:match("%w+$")] = (files[name:match("%w+$")] or 0) + 1
    end
    assert.same({ mp4 = 16, png = 1, json = 1 }, files)
    local facts = require("moonreel.data").scan(here .. "/result/held-out-red-circle-right-5.mp4")
    assert.same({ 6, 128, 128 }, { facts.frames, facts.height, facts.width })
  end)

  it("trains its autoencoder first, and measures the reconstruction of new clips", function()
    local words = { "--json", "--recipe", "tiny/demo_latent", "--out", here .. "/latent",
      "outputs=" .. here .. "/outputs", "threads=1", "num_workers=1", "warmup_steps=1",
      "data_path=" .. here .. "/demo.mrx", "steps=1", "stages.clips.num_sampling_steps=1",
      "stages.clips.cfg_scale=1", "stages.clips.sampling.seeds=[5]" }
    for stage, record in pairs { pictures = "model", frames = "model", clips = "vae" } do
      for _, word in ipairs { "vae_2d.block_out_channels=[8,8,8]", "vae_temporal.filters=8" } do
        words[#words + 1] = ("stages.%s.%s.%s"):format(stage, record, word)
      end
      words[#words + 1] = ("stages.%s.steps=1"):format(stage)
      words[#words + 1] = ("stages.%s.bucket_config.32px=recipe.replace{[1] = {1.0, 8}, "
        .. "[6] = {1.0, 2}}"):format(stage)
    end
    local code, report = script("run.lua", table.unpack(words))
    assert.equal(1, code)
    local result = json.decode(report:match("[^\n]+\n?$"))
    assert.equal(48, result.reconstructed.of)
    assert.is_true(result.reconstructed.psnr > 0 and result.reconstructed.psnr < 26)
    assert.is_true(result.reconstructed.lowest <= result.reconstructed.psnr)
    assert.is_true(result.reconstructed.drawn > 0 and result.reconstructed.drawn < 26)
    assert.equal(1, result.steps)
    assert.matches("/stages/clips$", result.run)
  end)

  it("continues first frames with a model that gets them", function()
    script("build.lua", here .. "/i2v", "1", "6", "motion")
    require("moonreel.data").ingest(here .. "/i2v/demo.csv", here .. "/i2v.mrx")
    script("build_weights.lua", here .. "/weights")
    local code, report = script("run.lua", "--json", "--recipe", "tiny/i2v", "--out",
      here .. "/given", "outputs=" .. here .. "/outputs", "data_path=" .. here .. "/i2v.mrx",
      "clip.from_pretrained=" .. here .. "/weights/clip", "steps=2", "threads=1", "num_workers=1",
      "model.depth=1", "model.depth_single_blocks=0", "sampling.num_steps=1",
      "sampling.seeds=[5]")
    assert.equal(1, code)
    local result = json.decode(report:match("[^\n]+\n?$"))
    assert.equal(24, #result.prompts)
    assert.same({ 8, 8, 8 }, { result["held-out"].of, result["other frame"].of,
      result["other text"].of })
    -- the given frame is shown unchanged
    local frame = require("moonreel.data").decode(here .. "/given/frames/1-red.png")
    local clip = require("moonreel.data").decode(here
      .. "/given/held-out-red-circle-right-5.mp4")
    local measure = require "datasets.demo.measure"
    assert.equal(measure.find(frame:rep(2), 2, 32, 32).colour,
      measure.find(clip:sub(1, 3 * 128 * 128):rep(2), 2, 128, 128).colour)
  end)

  it("reports a missing folder after --out", function()
    local ok, err = pcall(script, "run.lua", "--out")
    assert.is_false(ok)
    assert.matches("%-%-out: expected a folder", tostring(err))
  end)
end)
