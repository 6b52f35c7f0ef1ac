--- Clips through an autoencoder and back: the shipped recipes at a small size, the written files,
-- and errors of other jobs about an autoencoder.
-- Covers: lua/moonreel/job/reconstruct.lua lua/moonreel/settings/readers.lua
-- Covers: lua/moonreel/plan/coded.lua
-- Covers: lua/moonreel/settings/blame.lua
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local compiled = require "moonreel.plan.compiled"
local data = require "moonreel.data"
local demo_data = dofile "spec/support/demo_data.lua"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local job = require "moonreel.job"
local json = require "moonreel.core.json"
local machine = require "moonreel.plan.machine"
local mesh = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"
local words = require "spec.support.adversarial"

local NONE = { network = "none", linear = "none" }
local PLAIN = { "vae_loss_config.perceptual_loss_weight=0", "discriminator=recipe.remove" }

-- runs a job; returns its results and the final bytes of its codec's programs and weights
local function measured(s, write)
  local new, opened, bytes = codec.new, nil, nil
  finally(function() codec.new = new end)
  codec.new = function(...)
    opened = new(...)
    return opened
  end
  local code, facts = job.run(s, { write = function(line)
    write(line)
    bytes = { weights = opened:weight_bytes(), arena = 0, slots = 0, graphs = 0 }
    for _, one in pairs(opened.part.compiled.programs) do
      local m = one.prog:memory()
      bytes.arena = math.max(bytes.arena, m.arena)
      bytes.slots = bytes.slots + m.inputs + m.results + m.consts
      bytes.graphs = bytes.graphs + m.host
    end
  end })
  return bytes, code, facts
end

-- the plan of a job on this machine
local function planned(s)
  local m = machine.this(E.device("cpu", s.threads))
  local cache <close> = compiled.new(m)
  return plan.of(s, { mesh = mesh.new(m), compiled = cache }).largest
end

describe("job = reconstruct", function()
  local out
  setup(function() out = folder.new() end)
  teardown(function()
    out:remove()
    demo_data.remove()
  end)

  -- the fields of the run that trains the weights, without those that only training reads
  local function of_job(model, ...)
    local list = {}
    for _, word in ipairs(words(model, NONE, out.path)) do
      local trains = word:find "^vae_loss" or word:find "^discriminator" or word:find "^plugin"
      list[#list + 1] = not trains and word or nil
    end
    return table.move({ ... }, 1, select("#", ...), #list + 1, list)
  end

  local function weights_of(model)
    local s = settings.bake("opensora-2.0/vae/train_dc_ae", words(model, NONE, out.path, "name="
      .. model, "steps=1", table.unpack(PLAIN)))
    assert.equal(0, (trainer.run(s, { write = function() end })))
    return demo_data.run_dir(out.path, model)
  end

  for recipe, model in pairs { dc_ae = "dc_ae", hunyuan = "hunyuan_vae" } do
    it("encodes and decodes clips with the weights of a run: " .. recipe, function()
      local run = weights_of(model)
      local to = out.path .. "/" .. recipe
      local s = settings.bake("opensora-2.0/vae/" .. recipe, of_job(model, "ckpt_path=" .. run,
        "save_dir=" .. to, "steps=2"))
      local lines = {}
      local bytes, code, facts = measured(s, function(line) lines[#lines + 1] = line end)
      assert.equal(0, code)
      -- the plan has the bytes of the programs that ran
      local holds = planned(s).bytes
      assert.same(bytes, { weights = holds.weights, arena = holds.arena, slots = holds.slots,
        graphs = holds.graphs })
      -- batch_size = 1 of the recipe, not the two clips of the bucket
      assert.equal(2, #facts.rows)
      assert.matches("32px, %d frames +2 +%d+%.%d%d", table.concat(lines, "\n"))
      local list = json.decode(base.read_file(facts.path), facts.path)
      assert.equal(facts.rows[2].psnr, list.clips[2].psnr)
      for _, row in ipairs(facts.rows) do
        assert.is_true(base.exists(row.file) and base.exists(row.given))
        assert.is_true(row.psnr > 3 and row.psnr < 60, row.psnr)
      end
      assert.is_true(facts.rows[1].psnr ~= facts.rows[2].psnr)
    end)
  end

  it("reports the error between the clip and the codec's output", function()
    local run = demo_data.run_dir(out.path, "hunyuan_vae")
    local s = settings.bake("opensora-2.0/vae/hunyuan", of_job("hunyuan_vae", "ckpt_path=" .. run,
      "save_dir=" .. out.path .. "/near", "steps=1"))
    local _, facts = job.run(s, { write = function() end })
    local index <close> = data.open(demo_data.path())
    local loader <close> = data.loader { index = index, epochs = 1, seed = s.seed,
      resolutions = s:plain "resolutions", bucket_config = { ["32px"] = { [5] = { 1.0, 1 } } } }
    local batch = loader:next()
    local clip = batch:tensor():reshape { 5, 3, 32, 32 }
    local coder <close> = codec.open(ckpt.dir(run, ckpt.steps(run)[1]),
      { fields = s:plain "model" })
    local back <close> = coder:decode(coder:encode(clip, coder:noise(5, 32, 32, s.seed,
      batch.keys[1], 0)), { frames = 5, height = 32, width = 32 })
    local sum, a, b = 0, clip:reshape { -1 }:totable(), back:reshape { -1 }:totable()
    for i, v in ipairs(a) do
      sum = sum + (v - b[i]) ^ 2
    end
    assert.near(10 * math.log(255 ^ 2 * T.count(clip.shape) / sum, 10), facts.rows[1].psnr, 1e-4)
  end)

  it("requires an autoencoder with weights", function()
    local function refused(code, pattern, ...)
      fails(code, pattern, job.run, settings.bake("opensora-2.0/vae/dc_ae", of_job("dc_ae", ...)),
        { write = function() end })
    end
    refused("MR_E_USAGE", "ckpt_path is not set: job = reconstruct needs", "ckpt_path=none")
    refused("MR_E_RECIPE", "model.type = dc_ae is an autoencoder, but job = extract makes "
      .. "latents for a model", "job=extract", "batch_size=none")
    refused("MR_E_RECIPE", "model.type = dc_ae is an autoencoder, whose loss has no times; try: "
      .. "job = reconstruct", "job=eval_loss", "batch_size=none")
    -- the other jobs do not read it
    refused("MR_E_RECIPE", "batch_size = 1, but training uses the batches of each", "job=extract")
    fails("MR_E_RECIPE", "model.type = STDiT3 is not an autoencoder", job.run,
      settings.bake("tiny/demo", { "job=reconstruct", "data_path=" .. demo_data.path() }),
      { write = function() end })
  end)

  it("names files of the perceptual loss that no recipe sets", function()
    fails("MR_E_CKPT", "^recipes/opensora%-2.0/vae/dc_ae.lua: .*vae_loss_config."
      .. "perceptual_network: there is no file './ckpts/vgg16%-397923af.pth'", trainer.run,
      settings.bake("opensora-2.0/vae/dc_ae", of_job("dc_ae", "job=train", "batch_size=none",
        "ckpt_path=none")), { write = function() end })
  end)
end)
