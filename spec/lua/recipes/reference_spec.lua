--- The shipped recipes of the references have each leaf of the reference's own tables, and no
-- unlisted ones. Sources: spec/golden/recipes (hpcaitech/Open-Sora bde3c42 and 7ad6a96,
-- LambdaLabsML fork).
local base = require "moonreel.core.base"
local configs = require "spec.golden.runner.configs"
local json = require "moonreel.core.json"
local settings = require "moonreel.settings"

local function agrees(name, reference)
  local texts, count = configs.differences(name, reference)
  assert.equal("", table.concat(texts, "\n"))
  assert.is_true(count > 5)
end

describe("recipes/opensora-1.2", function()
  -- reference recipe -> ours
  local names = {
    ["R adapt"] = "adapt", ["R stage1"] = "stage1", ["R stage2"] = "stage2",
      ["R stage3"] = "stage3", ["R stage1_feat"] = "stage1_feat",
    ["L stage1"] = "lambda/stage1", ["L stage2"] = "lambda/stage2", ["L stage3"] = "lambda/stage3",
      ["L stage4"] = "lambda/stage4",
    ["R misc/bs"] = "misc/bs", ["R misc/eval_loss"] = "misc/eval_loss",
      ["R misc/extract"] = "misc/extract", ["R misc/feat"] = "misc/feat",
    ["L stage5"] = "lambda/stage5", ["L stage6"] = "lambda/stage6",
      ["L demo_360p"] = "lambda/demo_360p", ["L demo_480p"] = "lambda/demo_480p",
  }
  local tables = json.decode(base.read_file("spec/golden/recipes/opensora-1.2.json"),
    "opensora-1.2.json").recipes
  for name, recipe in pairs(
      json.decode(base.read_file("spec/golden/recipes/opensora-1.2-misc.json"),
      "opensora-1.2-misc.json").recipes) do
    tables[name] = recipe
  end
  for reference, name in pairs(names) do
    it(("%s has each leaf of %s"):format(name, reference), function()
      agrees("opensora-1.2/" .. name, tables[reference])
    end)
  end

  it("has a twin for each reference recipe", function()
    for reference in pairs(tables) do
      assert.is_truthy(names[reference], reference)
    end
  end)

  it("stage 7 is stage 6", function()
    assert.equal(settings.bake("opensora-1.2/lambda/stage6").hash,
      settings.bake("opensora-1.2/lambda/stage7").hash)
  end)

  it("the tutorial sets the variables of its command", function()
    assert.same({ NCCL_P2P_LEVEL = "NVL", NCCL_NET_GDR_LEVEL = "PIX",
      NCCL_IB_HCA = "=mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7,mlx5_8",
      NCCL_IB_PCI_RELAXED_ORDERING = "1", NCCL_SOCKET_IFNAME = "eno1", NCCL_DEBUG = "WARN",
        TORCH_NCCL_ASYNC_ERROR_HANDLING = "1",
      TORCH_NCCL_ENABLE_MONITORING = "1", TOKENIZERS_PARALLELISM = "false",
        OMP_NUM_THREADS = "16" },
      settings.bake("opensora-1.2/lambda/tutorial"):get("env"))
    -- each of them has a help text, and all stages get them
    for name in pairs(settings.bake("opensora-1.2/lambda/tutorial"):get("env")) do
      assert.is_string(require("moonreel.recipe.variables")[name], name)
    end
    assert.equal("eno1", settings.bake("opensora-1.2/lambda/tutorial", nil,
      { stage = "stage3" }).env.NCCL_SOCKET_IFNAME)
  end)

  it("renders with the values of the sampling config", function()
    local s = settings.bake "opensora-1.2/sample"
    assert.same({ 30, 7.0, "240p", "9:16", 51, 24.0, 24.0, 42, 6.5 },
      { s.scheduler.num_sampling_steps, s.scheduler.cfg_scale, s.sampling.resolution,
      s.sampling.aspect_ratio, s.sampling.frames, s.sampling.fps, s.sampling.save_fps,
        s.seed, s.sampling.aes })
    assert.is_nil(s.sampling.flow)
  end)
end)

describe("recipes/opensora-2.0", function()
  for path, config in pairs(json.decode(base.read_file("spec/golden/recipes/opensora-2.0.json"),
      "opensora-2.0.json").configs) do
    local name = configs.twin(path)
    it(("%s has each leaf of %s"):format(name, path), function() agrees(name, config.values) end)
  end
end)

describe("configs.differences", function()
  it("reports a changed value, a missing field and an unexpected field", function()
    local tables = json.decode(base.read_file("spec/golden/recipes/opensora-1.2.json")).recipes
    local changed = tables["L stage1"]
    changed.lr, changed.wandb, changed.lrr = 0.5, nil, 3
    assert.same({
      "opensora-1.2/lambda/stage1 lr = 0.00016, the reference has 0.5",
      "opensora-1.2/lambda/stage1 lrr is no field of ours",
      "opensora-1.2/lambda/stage1 wandb = true at recipes/opensora-1.2/lambda/speedrun.lua:6, which the reference does not set",
    }, (configs.differences("opensora-1.2/lambda/stage1", changed)))
  end)
end)
