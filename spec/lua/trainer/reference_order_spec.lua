--- A run in the order of a reference. It reports what it leaves out, resumes in the same order, and
-- is refused when that order does not support a setting.
-- Covers: lua/moonreel/trainer/samples.lua lua/moonreel/data/place.lua
local ckpt = require "moonreel.ckpt"
local data = require "moonreel.data"
local demo_data = dofile "spec/support/demo_data.lua"
local order = require "moonreel.data.order"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

describe("a run in the order of a reference", function()
  local out = demo_data.scratch()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  local function bake(name, steps, ...)
    return settings.bake("tiny/demo", { "dataset.data_path=" .. demo_data.path(),
      "outputs=" .. out, "threads=1", "num_workers=1", "warmup_steps=2",
      "name=" .. name, "steps=" .. steps,
      "model.depth=1", "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32", ... })
  end

  local function train(...)
    local lines = {}
    local ok, result = pcall(trainer.run, bake(...), { write = function(line)
      lines[#lines + 1] = line
    end })
    return ok, result, table.concat(lines, "\n")
  end

  it("reduces clips to a frame rate and adds it to captions, or refuses to",
    function()
    local text = "dataset.type=video_text"
    assert.is_true((train("thinned", 2, "compat=opensora-2.0", text, "dataset.fps_max=4",
      "bucket_config=recipe.replace{32px: {3: (1.0, 8)}}")))
    for _, case in ipairs {
      { "dataset%.fps_max=4: dataset%.fps_max = 4: frames are skipped only in the order of "
        .. "opensora%-2%.0; try: compat = \"opensora%-2%.0\"", "dataset.fps_max=4" },
      { "dataset%.transform_name = rand_size_crop is not supported, because a sample has the "
        .. "size of its bucket",
        "dataset.transform_name=rand_size_crop" },
      { "dataset%.transform_name = center cuts squares, but the bucket 32px has clips of 44 x 22",
        "dataset.transform_name=center",
        "resolutions={32px: {pixels: 1024, aspects: ((2.0, 44, 22),)}}" },
    } do
      local ok, problem = train("refused", 1, text, table.unpack(case, 2))
      assert.is_false(ok)
      assert.matches(case[1], tostring(problem))
    end
    assert.is_true((train("square", 1, text, "dataset.transform_name=center")))
  end)

  -- 1.2 refuses clips of 6 frames for a bucket of 6
  local SHORTER = "bucket_config.32px.5=(1.0, 8)"

  for compat, config in pairs { ["opensora-1.2"] = SHORTER,
    ["opensora-2.0"] = "bucket_config.32px.1=(0.7, 32)" } do
    local name = compat:gsub("%W", "")
    local words = { "compat=" .. compat, config, "ckpt_every=4", compat == "opensora-1.2"
      and "bucket_config.32px.6=(0.0, 8)" or nil }

    it(("of %s leaves out incomplete batches, and resumes"):format(compat), function()
      -- two epochs and a part of a third one
      local s = bake(name, 1, table.unpack(words))
      local index <close> = data.open(demo_data.path())
      local draws <close> = order.open(s, index)
      local steps = 2 * draws:batches() + 3
      steps = steps + 4 - steps % 4
      local ok, problem, log = train(name, steps, table.unpack(words))
      assert.is_true(ok, tostring(problem))
      assert.matches("left out: %d+ samples, left over from whole batches, which the reference "
        .. "leaves out", log)
      local whole = demo_data.run_dir(out, name)
      -- a slow disk skips saves: resumes from the second newest checkpoint that exists
      ok, problem = train(name .. "-parts", steps, "load=" .. whole .. "@"
        .. ckpt.steps(whole)[2], table.unpack(words))
      assert.is_true(ok, tostring(problem))
      local parts = demo_data.run_dir(out, name .. "-parts")
      local x <close> = ckpt.open(ckpt.dir(whole, steps))
      local y <close> = ckpt.open(ckpt.dir(parts, steps))
      assert.equal(x.manifest.sampler, y.manifest.sampler)
      assert.is_true(#x.manifest.sampler < 400)
      for _, tensor in ipairs(x:names()) do
        assert.equal(0, x:compare(y, tensor).differing, tensor)
      end
      -- the checkpoint is at the position after that many draws
      draws:skip(steps - 1)
      local last = draws:next()
      assert.matches("\nepoch " .. last.epoch .. "\ndraw " .. last.number + 1 .. "\n",
        x.manifest.sampler)
    end)
  end

  it("resumes at the next epoch after the batch size has changed", function()
    local from = "load=" .. demo_data.run_dir(out, "opensora12")
    local other = { from, "compat=opensora-1.2", "bucket_config.32px.6=(0.0, 8)",
      (SHORTER:gsub("8%)", "5)")) }
    local ok, problem = train("other", 2000, table.unpack(other))
    assert.is_false(ok)
    assert.matches("cannot be carried over in the order of a reference", tostring(problem))
    local m <const> = ckpt.newest(demo_data.run_dir(out, "opensora12"))
    local steps = m.manifest.run_state.step + 1
    m:close()
    other[5] = "data_change=next"
    local log
    ok, problem, log = train("next", steps, table.unpack(other))
    assert.is_true(ok, tostring(problem))
    assert.matches("the data begin again with epoch 3", log)
  end)

  it("refuses settings that its order does not support", function()
    for words, want in pairs {
      ["tail=carry"] = 'tail = "carry": the order of a reference drops',
      ["share_out=lpt"] = "in the order of a reference ranks take turns",
      ["virtual_ranks=1000"] = "with enough others for a batch of each rank",
      ["order=own"] = false } do
      local ok, problem, log = train("refused", 1, "compat=opensora-2.0", words)
      assert.equal(not want, ok, words .. tostring(problem))
      if want then
        assert.is_true(tostring(problem):find(want, 1, true) ~= nil, tostring(problem))
      else
        assert.not_matches("left over", log)
      end
    end
    local ok, problem = train("refused", 1, "order=reference")
    assert.is_false(ok)
    assert.matches("needs compat, which says which reference", tostring(problem))
  end)
end)
