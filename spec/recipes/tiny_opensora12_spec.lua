--- A small Open-Sora 1.2: all its stages in sequence with its video autoencoder, T5 and masks,
-- stopped and resumed in a later stage; and a rendering.
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local weights = require "datasets.demo.weights"

-- trains like the command, reports which samples are used, and is asked to stop after the first
-- step of a later stage
local STOPPER = [[
local feed = require "moonreel.trainer.feed"
local new = feed.new
function feed.new(...)
  local f = new(...)
  local prepare = f.prepare
  function f.prepare(...)
    local out = prepare(...)
    for b, t in ipairs(out.t) do
      local n = #out.mask // #out.t
      print(("fed t %.17g mask %s"):format(t, table.concat(out.mask, "", (b - 1) * n + 1, b * n)))
    end
    return out
  end
  return f
end
local loop = require "moonreel.trainer.loop"
local step = loop.step
function loop.step(r)
  local more = step(r)
  if r.stage.name == "lambda4" and r.step == 1 then io.popen("kill -TERM $PPID"):close() end
  return more
end
return require("moonreel.cli.dispatch").run(arg)
]]

describe("recipes/tiny/opensora12", function()
  local out = demo_data.scratch()
  local vae = "vae.from_pretrained=" .. out .. "/vae"
  local t5 = "text_encoder.from_pretrained=" .. out .. "/t5"
  local last = out .. "/runs/001-opensora12/stages/lambda7"
  teardown(function()
    base.remove_dir(out)
    demo_data.remove()
  end)

  it("has the fields of the real stages, except sizes", function()
    local names = { adapt = "adapt" }
    for i = 1, 7 do
      names["lambda" .. i] = "lambda/stage" .. i
      names["stage" .. i] = i < 4 and "stage" .. i or nil
    end
    for name, file in pairs(names) do
      local tiny = settings.bake("tiny/opensora12", nil, { stage = name })
      local real = settings.bake("opensora-1.2/" .. file)
      for _, path in ipairs { "mask_ratios", "optim", "scheduler", "lr_schedule", "min_lr",
          "max_lr", "seed", "compat", "dtype", "grad_checkpoint", "model.freeze_y_embedder",
          "vae.type", "text_encoder.type", "model.qk_norm" } do
        assert.same(real:get(path), tiny:get(path), name .. " " .. path)
      end
    end
  end)

  it("trains its stages in sequence, stopped and resumed in a later one", function()
    weights.vae(out .. "/vae", 3)
    weights.t5(out .. "/t5", 4)
    local dir = folder.new()
    local words = { "train", "tiny/opensora12", vae, t5, "steps=2",
      "dataset.data_path=" .. demo_data.long_path(), "outputs=" .. out .. "/runs", "threads=1" }
    local stopped = process.run({ process.program(), dir:write("stopper.lua", STOPPER),
      table.unpack(words) }, "", { deadline_s = 600, output_bytes = 1 << 20 })
    dir:remove()
    assert.equal(143, stopped.exit, stopped.output)
    assert.matches("stage stage1 %(2 of 11%): follows .*/adapt/ckpt/step%-000000000002\n",
      stopped.output)
    assert.is_nil(stopped.output:match("stage lambda5"))
    -- given frames have the modulation of t = 0: masks matter when t differs
    local masks, videos = {}, 0
    for t, mask in stopped.output:gmatch("fed t (%S+) mask (%d+)\n") do
      assert.is_true(tonumber(t) > 0 and tonumber(t) < 1000, t)
      if #mask == 5 then
        videos = videos + 1
        masks[#masks + 1] = mask:find("0") and mask:find("1") and mask or nil
      end
    end
    assert.is_true(videos > 10 and #masks > 2, videos .. " videos, masks " .. #masks)
    words[#words + 1] = "load=latest"
    local text = demo_data.moonreel(table.unpack(words))
    assert.is_nil(text:match("stage lambda3 "))
    assert.matches("stage lambda4 %(8 of 11%): continues in .*continues .*/lambda4/ckpt/step%-0+1 "
      .. "at step 1\n", text)
    assert.matches("stage lambda7 %(11 of 11%): follows .*/lambda6/ckpt/step%-0+2\n", text)
    local final <close> = ckpt.open(last .. "/ckpt/step-000000000002")
    -- the autoencoder's weights are only in their own files
    assert.is_nil(final:info("scale"))
    assert.is_nil(final:info("temporal_vae.quant_conv.conv.weight"))
    assert.is_nil(final:info("shared.weight"))
  end)

  it("renders clips and stills through its autoencoder", function()
    local text = demo_data.moonreel("sample", last, "--prompt", "a red circle", "--steps", "2",
      "--frames", "17", "--out", out .. "/clips", "--threads", "1", "--seed", "1", "--seed", "2")
    local data = require "moonreel.data"
    local shown = {}
    for path in text:gmatch("(%S+%.mp4)") do
      local pixels, facts = data.decode(path)
      assert.same({17, 32, 32}, {facts.frames, facts.height, facts.width})
      shown[#shown + 1] = pixels
    end
    assert.equal(2, #shown)
    assert.are_not.equal(shown[1], shown[2])
  end)

  it("has no times for videos of fewer than 17 frames, and reports usable lengths", function()
    local _, err, code = folder.moonreel(("sample '%s' --prompt 'a red circle' --frames 6 --out "
      .. "'%s/none'"):format(last, out))
    assert.equal(2, code)
    assert.matches("sample: compat = \"opensora%-1%.2\" with scheduler%.use_timestep_transform "
      .. "counts 6 frames as 0 latent frames, so all times would be 0 and renderings black; "
      .. "expected 1 frame, or at least 17; try: ", err)
    assert.is_false(base.exists(out .. "/none"))
  end)

  it("leaves no files when the autoencoder's weights are missing", function()
    local ok, err = pcall(demo_data.moonreel, "train", "tiny/opensora12",
      "vae.from_pretrained=" .. out .. "/none", t5, "dataset.data_path=" .. demo_data.long_path(),
      "outputs=" .. out .. "/refused")
    assert.is_false(ok)
    assert.matches("exit 8", err)
    assert.is_false(base.exists(out .. "/refused"))
  end)
end)
