--- FLUX.1 of MLPerf: the recipes contain its rules, and all three of them run at a small size: a
-- cache is made, a model trains from it, its validation loss falls.
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local folder = require "spec.support.folder"
local job = require "moonreel.job"
local run = require "moonreel.run"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"
local weights = require "datasets.demo.weights"

local SIDE, STILLS = 32, 16

-- the fields that make the recipes small
local SMALL = {
  "resolutions=recipe.replace{square={pixels=1024,aspects={{1.0,32,32}}}}",
  "bucket_config.square.1=(1.0, 2)", "virtual_ranks=4",
  "model.hidden_size=32", "model.num_heads=2", "model.depth=1", "model.depth_single_blocks=1",
  "model.axes_dim={4,6,6}", "model.mlp_ratio=2", "model.context_in_dim=32",
  "model.vec_in_dim=32", "vae.ch=8", "vae.ch_mult={1,1,2,2}", "vae.num_res_blocks=1",
  "vae.norm_groups=4", "text_encoder.max_length=24", "clip.max_length=24", "dtype=fp32",
  "num_workers=1", "threads=1", "log_every=1000",
}

describe("FLUX.1 of MLPerf", function()
  local function silent() end

  it("follows the rules of the benchmark", function()
    local s = settings.bake "mlperf/flux1"
    local batch = s.virtual_ranks * s.bucket_config.square[1][2]
    assert.equal(512, batch)
    assert.equal(262144, s.ckpt_every * batch)
    assert.same({ 2e-4, 1e-8, 0.1, 1.0, "adamw" }, { s.optim.lr, s.optim.eps,
      s.optim.weight_decay, s.optim.grad_clip, s.optim.type })
    assert.same({ 0.9, 0.95 }, s:plain "optim.betas")
    assert.same({ 1600, "constant", "uniform", 0.0 }, { s.warmup_steps, s.lr_schedule,
      s.train_times, s.sigma_min })
    assert.same({ 19, 38, 3072, 24, 0.1, false, false }, { s.model.depth,
      s.model.depth_single_blocks, s.model.hidden_size, s.model.num_heads,
      s.model.class_dropout_prob, s.model.guidance_embed, s.model.cond_embed })
    assert.same({ 256, 77, 0.3611, 0.1159, true }, { s.text_encoder.max_length, s.clip.max_length,
      s.vae.scale_factor, s.vae.shift_factor, s.cached })
    -- the reference meets its target within this many samples
    assert.is_true(s.steps * batch >= 7.1e6 and s.steps * batch <= 7.7e6)
    local times = settings.bake("mlperf/flux1_eval"):plain "eval_timesteps"
    assert.equal(8, #times)
    for i, t in ipairs(times) do
      assert.equal((i - 1) / 8, t)
    end
  end)

  describe("at a small size", function()
    local dir, words
    setup(function()
      dir = folder.new()
      local list = { "path,text" }
      for i = 1, STILLS do
        local pixels = {}
        for k = 1, 3 * SIDE * SIDE do
          pixels[k] = string.char((k // (SIDE * SIDE) * 90 + 15 * i) % 256)
        end
        local name = ("still-%02d.png"):format(i)
        data.png(dir.path .. "/" .. name, table.concat(pixels), { height = SIDE, width = SIDE })
        list[i + 1] = ("%s,a picture of shade %d"):format(name, i)
      end
      dir:write("stills.csv", table.concat(list, "\n") .. "\n")
      data.ingest(dir.path .. "/stills.csv", dir.path .. "/stills.mrx")
      weights.t5(dir.path .. "/t5", 3)
      weights.clip(dir.path .. "/clip", 4)
      words = table.move({ "dataset.data_path=" .. dir.path .. "/stills.mrx",
        "vae.from_pretrained=" .. dir.path .. "/ae.safetensors",
        "text_encoder.from_pretrained=" .. dir.path .. "/t5",
        "clip.from_pretrained=" .. dir.path .. "/clip", "outputs=" .. dir.path .. "/runs" }, 1, 5,
        #SMALL + 1, table.move(SMALL, 1, #SMALL, 1, {}))
      weights.autoencoder(dir.path .. "/ae.safetensors",
        settings.bake("mlperf/flux1", words):plain "vae", 2)
    end)
    teardown(function() dir:remove() end)

    local function bake(name, ...)
      local list = table.move(words, 1, #words, 1, {})
      return settings.bake(name, table.move({ ... }, 1, select("#", ...), #list + 1, list))
    end

    local function train(...)
      assert.equal(0, (trainer.run(bake("mlperf/flux1", "warmup_steps=1", "optim.lr=3e-3",
        "epochs=100", "name=flux", ...), { write = silent })))
      return dir.path .. "/runs/" .. base.list_dir(dir.path .. "/runs")[1]
    end

    local function loss_of(path)
      local code, facts = job.run(bake("mlperf/flux1_eval", "ckpt_path=" .. path, "name=eval"),
        { write = silent })
      assert.equal(0, code)
      local row = facts.rows[1]
      assert.same({ STILLS, 8 }, { row.samples, #row.losses })
      return row.loss
    end

    -- renamed pictures, and their names restored
    local function move(from, to)
      for i = 1, STILLS do
        local stem = ("%s/still-%02d"):format(dir.path, i)
        assert(os.rename(stem .. from, stem .. to))
      end
    end

    it("makes its cache, trains from it, and its validation loss falls", function()
      assert.equal(0, (job.run(bake("mlperf/flux1_extract"), { write = silent })))
      assert.is_true(base.exists(dir.path .. "/stills.cache/."))
      -- training encodes nothing: it needs no picture
      local folder_of_run = train "steps=1"
      local first = loss_of(folder_of_run .. "@1")
      move(".png", ".away")
      train("steps=60", "load=" .. folder_of_run)
      local steps = 0
      for entry in run.entries(folder_of_run) do
        if entry.kind == "step" then
          steps = steps + 1
          assert.is_true(entry.loss > 0 and entry.loss < 100)
        end
      end
      assert.equal(60, steps)
      move(".away", ".png")
      local last = loss_of(folder_of_run .. "@60")
      assert.is_true(last < 0.9 * first, ("%g, then %g"):format(first, last))
    end)
  end)
end)
