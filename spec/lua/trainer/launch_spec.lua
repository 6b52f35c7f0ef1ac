--- A resumed run has the values of the checkpoint that it continues, even when newer ones are
-- damaged.
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local run = require "moonreel.run"

local RECIPE = [[return recipe.extend("tiny/demo") { threads = 1, log_every = 1, warmup_steps = 0,
  lr_schedule = "constant", ckpt_every = 2, model = { depth = 1 },
  bucket_config = recipe.replace { ["32px"] = { [1] = { 1.0, 4 } } } }]]
local STAGES = [[return recipe { threads = 1, log_every = 1, ckpt_every = 2, warmup_steps = 0,
  lr_schedule = "constant", model = { depth = 1 },
  bucket_config = { ["32px"] = { [1] = { 1.0, 4 } } },
  stages = { { name = "a", recipe = "tiny/demo", steps = 4 },
    { name = "b", recipe = "tiny/demo", steps = 2, ckpt_path = recipe.previous } } }]]

describe("trainer.launch", function()
  local dir, last
  setup(function() dir = folder.new() end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  -- trains; returns standard output and error
  local function train(recipe, name, words)
    last = dir:write(name .. ".lua", recipe)
    local output, errors, code = folder.moonreel(("train '%s' outputs='%s' %s"):format(last,
      dir.path .. "/out", words))
    assert.equal(0, code, errors)
    return output, errors
  end

  local function path(name) return demo_data.run_dir(dir.path .. "/out", name) end

  -- a run with a learning rate of 2e-4 up to step 4 and of 1e-4 afterwards
  local function two_launches(name, words)
    local data = ("data_path=%s %s"):format(demo_data.path(), words or "")
    train(RECIPE, name, data .. " steps=4 lr=2e-4 seed=7")
    train(RECIPE, name, ("%s load=%s steps=6 lr=1e-4"):format(data, path(name)))
    return path(name)
  end

  local function shard(of, step, rank)
    return ("%s/r%05d-of-%05d.safetensors"):format(ckpt.dir(of, step), rank or 0, rank and 2 or 1)
  end

  local function cut(file) base.replace_file(file, base.read_file(file):sub(1, 100000)) end

  -- changes one byte and keeps the length
  local function flip(file)
    local text = base.read_file(file)
    base.replace_file(file, text:sub(1, -2) .. string.char(text:byte(-1) ~ 1))
  end

  -- learning rate and seed of a run's last step, by its journal and newest checkpoint
  local function values(of)
    local lr
    for entry in run.entries(of) do
      lr = entry.kind == "step" and entry.lr or lr
    end
    local source <close> = ckpt.open(ckpt.dir(of, ckpt.steps(of)[1]))
    local s = require("moonreel.settings").from_json(source.manifest.settings, "x")
    return { s.optim.lr, s.seed, lr, ckpt.steps(of)[1] }
  end

  it("takes the values of the checkpoint before when the newest is cut off", function()
    local of = two_launches "cut"
    cut(shard(of, 6))
    local output, errors = train(RECIPE, "cut", ("load=%s steps=5"):format(of))
    assert.matches("step 6 skipped and renamed", output)
    assert.matches("was started with data_path=%S+ lr=2e%-4 seed=7, which apply again",
      errors)
    assert.same({ 2e-4, 7, 2e-4, 5 }, values(of))
  end)

  it("takes them when only bytes of the newest differ, which loading detects",
    function()
      local of = two_launches "flip"
      flip(shard(of, 6))
      local output = train(RECIPE, "flip", "load=latest steps=5")
      assert.matches("was started with data_path=%S+ lr=2e%-4 seed=7, according to %S+000004; this "
        .. "applies instead of seed=7 data_path=%S+ lr=1e%-4\n", output)
      assert.same({ 2e-4, 7, 2e-4, 5 }, values(of))
      -- what the command line sets now overrides both
      flip(shard(of, 5))
      train(RECIPE, "flip", "load=latest steps=5 lr=5e-4")
      assert.same({ 5e-4, 7, 5e-4, 5 }, values(of))
    end)

  it("takes them from RUN@STEP into a new run", function()
    local of = two_launches "at"
    train(RECIPE, "at", ("load=%s@2 steps=3"):format(of))
    assert.are_not.equal(of, path "at")
    assert.same({ 2e-4, 7, 2e-4, 3 }, values(path "at"))
    -- a pattern finds a run whose newer checkpoint is damaged
    flip(shard(of, 4))
    train(RECIPE, "at", ("'load=%s/ckpt/step-00000000000[24]' steps=3"):format(of))
    assert.same({ 2e-4, 7, 2e-4, 3 }, values(path "at"))
    assert.equal(2e-4, require("moonreel.settings").load(path "at" .. "/settings.json").optim.lr)
  end)

  it("takes them on several ranks", function()
    local of = two_launches("ranks", "-n 2")
    flip(shard(of, 6, 1))
    local output = train(RECIPE, "ranks", ("load=%s steps=5"):format(of))
    assert.matches("this applies instead of", output)
    assert.same({ 2e-4, 7, 2e-4, 5 }, values(of))
  end)

  it("compares what each rank took with what rank 0 took", function()
    local launch = require "moonreel.trainer.launch"
    local recipe = dir:write("agree.lua", STAGES)
    local own = { { key = "seed", text = "7", argument = "seed=7" } }
    local one = launch.new(recipe, own, { name = "train", overrides = true })
    local part = one.list[2]
    local all = { { key = "lr", text = "0.5", argument = "lr=0.5" }, own[1] }
    one:agree { first = function() return { taken = "lr=0.5", all = all } end }
    assert.equal(part, one.list[2])
    assert.same({ 0.5, 7 }, { part.settings.optim.lr, one:part("b").seed })
    -- hosts compare only the command line
    assert.are_not.equal(one.words.hash, one.settings.hash)
    one:agree { first = function(_, f) return f() end }
    assert.equal(0.5, one:part("a").optim.lr)
  end)

  it("has the same hash for a launch from weights and its restart from a checkpoint", function()
    local launch = require "moonreel.trainer.launch"
    local words = require "moonreel.settings.words"
    local command = { name = "train", overrides = true }
    local recipe = dir:write("weights.lua", RECIPE)
    local function hash(...)
      return launch.new(recipe, words.parse({ ... }, command).overrides, command).hash
    end
    local first = hash("ckpt_path=w.safetensors", "lr=0.5")
    assert.equal(first, hash("ckpt_path=w.safetensors", "lr=0.5", "ckpt_path=none", "load=none"))
    assert.equal(first, hash "lr=0.5")
    assert.are_not.equal(first, hash("ckpt_path=w.safetensors", "lr=0.25"))
  end)

  it("takes them in a run with stages, and for the stages that follow", function()
    local data = ("data_path=%s"):format(demo_data.path())
    train(STAGES, "row", data .. " stages.a.steps=2 stages.b.steps=1 lr=2e-4 seed=7 --stage a")
    local outer = path "row"
    os.execute(("rm -r '%s/stages/b'"):format(outer))
    train(STAGES, "row", ("%s load=%s stages.a.steps=4 lr=1e-4 stages.b.steps=1"):format(data,
      outer))
    os.execute(("rm -r '%s/stages/b'"):format(outer))
    local a = outer .. "/stages/a"
    assert.equal(1e-4, values(a)[1])
    flip(shard(a, 4))
    train(STAGES, "row", ("load=%s stages.a.steps=3 stages.b.steps=2"):format(outer))
    assert.same({ 2e-4, 7, 2e-4, 3 }, values(a))
    assert.same({ 2e-4, 7, 2e-4, 2 }, values(outer .. "/stages/b"))
    -- in the settings around the stages and in all files
    for _, of in ipairs { outer, outer .. "/stages/b" } do
      assert.equal(2e-4, require("moonreel.settings").load(of .. "/settings.json").optim.lr)
    end
  end)
end)
