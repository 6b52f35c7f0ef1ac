--- The loss of weights by bucket and time, compared with the known loss of a model that predicts
-- zero.
-- Covers: lua/moonreel/job/eval_loss.lua lua/moonreel/job/work.lua
-- Covers: lua/moonreel/diffusion/eval_times.lua lua/moonreel/settings/eval_times.lua
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local data = require "moonreel.data"
local fails = require "spec.support.fails"
local job = require "moonreel.job"
local json = require "moonreel.core.json"
local sample = require "moonreel.sample"
local settings = require "moonreel.settings"
local small_set = require "spec.support.small_set"
local trainer = require "moonreel.trainer"

describe("job = eval_loss", function()
  local dir, words, silent
  setup(function()
    dir, words = small_set.new()
    function silent() end
    local list = table.move(words, 1, #words, 1, {})
    list[#list + 1] = "steps=1"
    assert.equal(0, (trainer.run(settings.bake(dir.path .. "/small.lua", list),
      { write = silent })))
  end)
  teardown(function() dir:remove() end)

  local function bake(...)
    local list = table.move(words, 1, #words, 1, {})
    for _, word in ipairs { "job=eval_loss", "mask_ratios=none", "dtype=fp32",
      "num_eval_timesteps=3", "name=eval", ... } do
      list[#list + 1] = word
    end
    return settings.bake(dir.path .. "/small.lua", list)
  end

  -- weights whose model predicts zero
  local function write_zeros(path)
    local source <close> = ckpt.newest(dir.path .. "/runs/001-small")
    local rows = {}
    for i, name in ipairs(source:names()) do
      if not name:find("^ema") and not name:find("^adam") and not name:find("^master") then
        local info = source:info(name)
        local bytes = source:read(name)
        if name:find("^final_layer%.linear") then
          bytes = ("\0"):rep(#bytes)
        end
        rows[#rows + 1] = { name = name, dtype = info.dtype, shape = info.shape, ptr = bytes,
          bytes = #bytes, at = i }
      end
    end
    ckpt.write(path, rows)
  end

  it("reports the loss of a model that predicts zero at each time", function()
    write_zeros(dir.path .. "/zeros.safetensors")
    local lines = {}
    local weights = "ckpt_path=" .. dir.path .. "/zeros.safetensors"
    local code, facts = job.run(bake(weights), { write = function(line)
      lines[#lines + 1] = line
    end })
    assert.equal(0, code)
    local written = json.decode(base.read_file(facts.path), facts.path)
    assert.same({ 250, 500, 750 }, written.times)
    -- the same clips, latents and noise, computed here
    local s = bake(weights)
    local sampler <close> = sample.open(dir.path .. "/zeros.safetensors", { settings = s })
    local index <close> = data.open(dir.path .. "/clips.mrx")
    local lengths = { 1, 5, 9 }
    for k, frames in ipairs(lengths) do
      local loader <close> = data.loader { index = index, seed = s.seed, epochs = 1,
        compat = s.compat, resolutions = s:plain("resolutions"), allow_empty_buckets = true,
        bucket_config = { small = { [frames] = { 1.0, 2 } } } }
      local sums, squares, n = { 0, 0, 0 }, { 0, 0, 0 }, 0
      local batch = loader:next()
      while batch do
        for b = 1, batch.n do
          local x0 = sampler.codec:encode(batch:tensor():slice(0, b - 1, b):reshape { frames, 3,
            16, 16 }, sampler.codec:noise(frames, 16, 16, s.seed, batch.keys[b], 0))
          for i = 1, 3 do
            local noise = T.new("f32", x0.shape):fill_normal(s.seed, "noise", batch.keys[b], i)
            local off = x0:clone() - noise
            local loss = (off * off):mean()
            sums[i], squares[i] = sums[i] + loss, squares[i] + loss * loss
          end
          n = n + 1
        end
        loader:release(batch)
        batch = loader:next()
      end
      local row = written.buckets[k]
      assert.equal(n, row.samples)
      assert.equal(frames, row.frames)
      for i = 1, 3 do
        assert.is_true(math.abs(row.losses[i] - sums[i] / n) < 1e-5 * sums[i] / n,
          ("%s %s %s"):format(frames, row.losses[i], sums[i] / n))
        -- the error of a mean over n samples
        local error = ((squares[i] / n - (sums[i] / n) ^ 2) / (n - 1)) ^ 0.5
        assert.is_true(n > 1 and error > 0)
        assert.near(error, row.errors[i], 1e-3 * error)
      end
      assert.is_true(math.abs(row.loss - (row.losses[1] + row.losses[2] + row.losses[3]) / 3)
        < 1e-9)
    end
    assert.matches("bucket +batch +samples +loss +t=250%.0 +t=500%.0 +t=750%.0", lines[1])
    assert.matches("^small, 9 frames +2 +%d+ +%d%.%d%d%d%d +%d%.%d%d%d%d±0%.%d%d%d%d ", lines[4])
    assert.matches("written: .*/%d+%-eval/eval_loss%.json", lines[5])
  end)

  it("evaluates each sample at one time, in turn", function()
    write_zeros(dir.path .. "/zeros.safetensors")
    local weights = "ckpt_path=" .. dir.path .. "/zeros.safetensors"
    local turns = { "eval_timesteps={0, 0.25, 0.5, 0.75, 1}", "eval_in_turn=true",
      "bucket_config=recipe.replace{small = {[5] = {1.0, 2}}}" }
    local _, facts = job.run(bake(weights, table.unpack(turns)), { write = silent })
    local written = json.decode(base.read_file(facts.path), facts.path)
    assert.same({ 0, 250, 500, 750, 1000 }, written.times)
    -- the same clips, latents and noise, computed here
    local s = bake(weights)
    local sampler <close> = sample.open(dir.path .. "/zeros.safetensors", { settings = s })
    local index <close> = data.open(dir.path .. "/clips.mrx")
    local loader <close> = data.loader { index = index, seed = s.seed, epochs = 1,
      compat = s.compat, resolutions = s:plain("resolutions"), allow_empty_buckets = true,
      bucket_config = { small = { [5] = { 1.0, 2 } } } }
    local sums, counts, n = { 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0 }, 0
    local batch = loader:next()
    while batch do
      for b = 1, batch.n do
        local x0 = sampler.codec:encode(batch:tensor():slice(0, b - 1, b):reshape { 5, 3, 16, 16 },
          sampler.codec:noise(5, 16, 16, s.seed, batch.keys[b], 0))
        local off = x0:clone() - T.new("f32", x0.shape):fill_normal(s.seed, "noise",
          batch.keys[b], 1)
        local i = n % 5 + 1
        sums[i], counts[i], n = sums[i] + (off * off):mean(), counts[i] + 1, n + 1
      end
      loader:release(batch)
      batch = loader:next()
    end
    local row, all = written.buckets[1], 0
    assert.is_true(n > 5 and n % 5 ~= 0, n)
    assert.equal(n, row.samples)
    for i = 1, 5 do
      assert.near(sums[i] / counts[i], row.losses[i], 1e-5 * row.losses[i])
      all = all + row.losses[i] / 5
    end
    assert.near(all, row.loss, 1e-9)
    assert.is_true(math.abs(row.losses[1] - row.losses[2]) > 1e-3 * row.losses[1])
  end)

  it("evaluates given times, also 0 and 1; with one time, in turn makes no difference", function()
    local function rows(...)
      return select(2, job.run(bake("ckpt_path=" .. dir.path .. "/runs/001-small", ...),
        { write = silent })).rows
    end
    assert.same(rows "num_eval_timesteps=1", rows "eval_timesteps={0.5}")
    local turned = rows("eval_timesteps={0.25}", "eval_in_turn=true")
    for i, row in ipairs(rows "eval_timesteps={0.25}") do
      assert.near(row.loss, turned[i].loss, 1e-6 * row.loss)
      assert.equal(row.samples, turned[i].samples)
    end
    -- from a clean clip the model cannot know the noise, so the losses differ
    for _, row in ipairs(rows "eval_timesteps={0, 1}") do
      assert.not_equal(row.losses[1], row.losses[2])
    end
    fails("MR_E_DATA", "eval_in_turn: there are %d+ samples of small, %d frames for 40 times; try: "
      .. "eval_in_turn = false", rows, "eval_timesteps={" .. ("0.5, "):rep(40) .. "}",
      "eval_in_turn=true")
    fails("MR_E_RECIPE", "eval_timesteps: expected at least one time from 0 to 1, got an empty "
      .. "list", rows,
      "eval_timesteps={}")
    fails("MR_E_USAGE", "eval_timesteps.+1.5", rows, "eval_timesteps={1.5}")
  end)

  it("has losses that differ by time for a trained model", function()
    local _, facts = job.run(bake("ckpt_path=" .. dir.path .. "/runs/001-small", "steps=1"),
      { write = silent })
    for _, row in ipairs(facts.rows) do
      assert.is_true(row.samples <= 3)
      assert.not_equal(row.losses[1], row.losses[2])
    end
    -- a second evaluation has the same losses
    local _, again = job.run(bake("ckpt_path=" .. dir.path .. "/runs/001-small", "steps=1"),
      { write = silent })
    assert.same(facts.rows, again.rows)
  end)

  it("evaluates the averaged weights on request", function()
    local function losses(...)
      local _, facts = job.run(bake("ckpt_path=" .. dir.path .. "/runs/001-small", ...),
        { write = silent })
      return facts.rows[1].losses
    end
    local plain = losses()
    assert.same(plain, losses("eval_ema=false"))
    assert.is_false(plain[1] == losses("eval_ema=true")[1])
  end)

  it("reports a bucket without samples, and refuses fields that it does not read", function()
    local lines = {}
    job.run(bake("ckpt_path=" .. dir.path .. "/runs/001-small", "steps=1",
      "bucket_config.small.11=(1.0, 2)", "bucket_config.small.40=(1.0, 1)"),
      { write = function(line) lines[#lines + 1] = line end })
    assert.matches("small, 40 frames: no sample of the index enters it", table.concat(lines, "\n"))
    fails("MR_E_USAGE", "ckpt_path is not set: job = eval_loss measures the loss of its weights",
      job.run,
      bake(), { write = silent })
    fails("MR_E_RECIPE", "cached: job = eval_loss does not read it", job.run,
      bake("cached=true"), { write = silent })
    fails("MR_E_USAGE", "^ckpt_path=/none: [^=]*no such run", job.run, bake("ckpt_path=/none"),
      { write = silent })
    fails("MR_E_CKPT", "vae: 55 tensors are missing", job.run,
      bake("ckpt_path=" .. dir.path .. "/vae"),
      { write = silent })
  end)
end)
