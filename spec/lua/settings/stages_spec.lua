--- Settings of the stages of a recipe.
local folder = require "spec.support.folder"
local settings = require "moonreel.settings"

describe("stages", function()
  local dir
  before_each(function()
    dir = folder.new()
    dir:write("one.lua", "return recipe { lr = 1, epochs = 10, seed = 1, min_lr = 1 }")
    dir:write("two.lua", 'return recipe.extend("./one") { lr = 2 }')
  end)
  after_each(function() dir:remove() end)

  local outer = [[return recipe { seed = 9, grad_clip = function(r) return r.lr * 10 end, stages = {
    { name = "a", recipe = "./one", data_path = "a.csv" },
    { name = "b", recipe = "./two", epochs = 3, ckpt_path = recipe.previous },
    { name = "c", lr = function(r) return r.epochs end, load = recipe.previous } } }]]

  local function stage(name, overrides, options)
    options = options or { child = false }
    options.stage = name
    return settings.bake(dir:write("outer.lua", outer), overrides, options)
  end

  it("override their recipe and the outer one, but not the command line", function()
    local a, b, c = stage "a", stage "b", stage "c"
    assert.same({ 1.0, 10, 9, "a.csv", 10.0 },
      { a.optim.lr, a.epochs, a.seed, a.dataset.data_path, a.optim.grad_clip })
    assert.same({ 2.0, 3, 9, "recipe.previous", 20.0 },
      { b.optim.lr, b.epochs, b.seed, b.ckpt_path, b.optim.grad_clip })
    assert.same({ 1000.0, 1000, "recipe.previous" }, { c.optim.lr, c.epochs, c.load })
    -- an entry overrides the outer recipe's own keys
    assert.same({ 6, 0.5 }, { stage("b", { "stages.b.seed=6" }).seed,
      settings.bake(dir:write("entry.lua", "return recipe { lr = 3, stages = { { name = 'a', recipe "
        .. "= './one', lr = 0.5 } } }"), {}, { child = false, stage = "a" }).optim.lr })
    local over = { "epochs=4", "stages.b.epochs=5", "stages.b.seed=6", "seed=7" }
    assert.same({ 4, 7 }, { stage("a", over).epochs, stage("a", over).seed })
    assert.same({ 5, 6 }, { stage("b", over).epochs, stage("b", over).seed })
  end)

  -- lr, seed and epochs of stage a, and the number of layers that set lr
  local function stage_a(text)
    local s = settings.bake(dir:write("outer.lua", text), {}, { child = false, stage = "a" })
    return { s.optim.lr, s.seed, s.epochs, #s:chain("lr") }
  end

  it("override ancestors of the outer recipe; a common ancestor counts once",
    function()
    dir:write("base.lua", "return recipe { lr = 1, seed = 1, epochs = 1 }")
    dir:write("part.lua", 'return recipe.extend("./base") { lr = 2 }')
    local list = " { epochs = 4, stages = { { name = 'a', recipe = './part' } } }"
    assert.same({ 2.0, 1, 4, 3 }, stage_a('return recipe.extend("./base")' .. list))
    -- an ancestor that only the outer recipe has
    dir:write("common.lua", "return recipe { lr = 7, seed = 7 }")
    assert.same({ 2.0, 1, 4, 4 }, stage_a('return recipe.extend("./common")' .. list))
    dir:write("alone.lua", "return recipe { epochs = 2 }")
    assert.same({ 7.0, 7, 4, 2 },
      stage_a('return recipe.extend("./common")' .. list:gsub("part", "alone")))
    -- above the common ancestor, because the outer recipe has it there
    dir:write("mix.lua", "return recipe { seed = 8 }")
    assert.same({ 2.0, 8, 4, 3 }, stage_a('return recipe.extend("./base", "./mix")' .. list))
  end)

  it("are overridden by a recipe that extends the outer one, and by its parents", function()
    dir:write("tutorial.lua", "return recipe { lr = 3, stages = { { name = 'a', recipe = './one' "
      .. "} } }")
    dir:write("mix.lua", "return recipe { seed = 8 }")
    assert.same({ 3.0, 8, 5, 3 }, stage_a('return recipe.extend("./tutorial", "./mix") '
      .. "{ epochs = 5 }"))
    -- also by a parent that the stage's recipe inherits
    assert.same({ 3.0, 1, 10, 3 }, stage_a('return recipe.extend("./tutorial", "./one") {}'))
  end)

  it("refuse parents in opposite orders", function()
    dir:write("x.lua", "return recipe {}")
    dir:write("y.lua", "return recipe {}")
    dir:write("yx.lua", 'return recipe.extend("./y", "./x") {}')
    local code, fault = dir:fault('return recipe.extend("./x", "./y") {\n'
      .. "stages = { { name = 'a', recipe = './yx' } } }")
    assert.equal(3, code)
    assert.matches("^main%.lua:2: .*in opposite orders", fault)
  end)

  it("keep the lines of their entries", function()
    assert.matches("outer%.lua:3$", stage("b"):origin("epochs"))
    assert.matches("two%.lua:1$", stage("b"):origin("lr"))
  end)

  it("have the hashes that the outer settings list", function()
    local s = settings.bake(dir:write("outer.lua", outer), {}, { child = false })
    assert.same({ "a", "b", "c" }, { s.stages[1].name, s.stages[2].name, s.stages[3].name })
    assert.equal(stage("b").hash, s.stages[2].hash)
    local other = settings.bake(dir.path .. "/outer.lua", { "stages.b.lr=7" }, { child = false })
    assert.equal(s.stages[1].hash, other.stages[1].hash)
    assert.is_false(s.stages[2].hash == other.stages[2].hash)
    assert.is_false(s.hash == other.hash)
    assert.equal(s.hash, settings.from_json(s:to_json(), "x").hash)
    -- the same through a child process
    assert.equal(s.hash, settings.bake(dir.path .. "/outer.lua").hash)
    assert.equal(stage("b").hash, stage("b", {}, {}).hash)
  end)

  it("report what is wrong with an entry or a name", function()
    for text, want in pairs {
      ["stages = 5"] = "stages: expected a list of {name = ..., recipe = ..., fields}",
      ["stages = {}"] = "stages: the list is empty",
      ["stages = { 'a' }"] = "stages[1]: expected {name = ..., recipe = ..., fields}, got string",
      ["stages = { { lr = 1 } }"] = "stages[1].name: expected text of letters",
      ["stages = { { name = 'a b' } }"] = "stages[1].name: expected text of letters",
      ["stages = { { name = 'a' }, { name = 'a' } }"] =
        "stages[2].name: 'a' is the name of an earlier stage",
      ["stages = { { name = 'a', recipe = 1 } }"] =
        "stages[1].recipe: expected the name of a recipe",
      ["stages = { { name = 'a', recipe = './nothing' } }"] = "no file nothing.lua",
      ["stages = { { name = 'a', lrr = 1 } }"] = "lrr is not a field, did you mean 'lr'?",
    } do
      local code, fault = dir:fault("return recipe {\n " .. text .. " }")
      assert.equal(3, code, text .. fault)
      assert.is_truthy(fault:find("main.lua:2: ", 1, true), fault)
      assert.is_truthy(fault:find(want, 1, true), text .. ": " .. fault)
    end
    local code, fault = dir:fault(outer:gsub("%./one", dir.path .. "/one"):gsub("%./two",
      dir.path .. "/two"), { "stages.d.lr=1" })
    assert.equal(2, code)
    assert.equal(
      "stages.d.lr=1: there is no stage 'd', did you mean 'a'?; expected one of a, b, c", fault)
    local ok, problem = pcall(stage, "d")
    assert.is_false(ok)
    assert.equal(2, problem.exit)
  end)

  it("cannot be nested", function()
    dir:write("inner.lua", "return recipe { stages = { { name = 'x' } } }")
    local code, fault = dir:fault("return recipe { stages = { { name = 'a', recipe = './inner' } } "
      .. "}")
    assert.equal(3, code)
    assert.matches("'%./inner' has stages itself, and stages cannot be nested", fault)
    -- not even in the recipe of a stage
    dir:write("self.lua", 'return recipe.extend("./main") { lr = 1 }')
    local _, again = dir:fault("return recipe { stages = { { name = 'a', recipe = './self' } } }")
    assert.matches("'%./self' has stages itself, and stages cannot be nested", again)
  end)

  it("do not inherit `load` of the outer recipe or the command line", function()
    local text = outer:gsub("seed = 9", 'seed = 9, load = "one"')
    dir:write("outer.lua", text)
    local function load_of(name, ...)
      return settings.bake(dir.path .. "/outer.lua", { ... }, { child = false, stage = name }).load
    end
    assert.is_nil(load_of("b"))
    assert.is_nil(load_of("b", "load=two"))
    assert.equal("recipe.previous", load_of("c", "load=two"))
    assert.equal("three", load_of("b", "load=two", "stages.b.load=three"))
    assert.equal("two", settings.bake(dir.path .. "/outer.lua", { "load=two" },
      { child = false }).load)
  end)

  it("compute functions of the outer recipe, each from its own values", function()
    dir:write("deep.lua", 'return recipe { bucket_config = { ["32px"] = { [6] = { 1.0, 8 } } }, '
      .. 'model = { depth = 2 } }')
    dir:write("outer.lua", [[return recipe {
      bucket_config = { ["32px"] = function(r, inherited) inherited[6][2] = inherited[6][2] // 2 return inherited end },
      warmup_steps = function(r) return r.bucket_config["32px"][6][2] * r.model.depth end, optim = { betas = { 0.5, function(r) return r.lr end } },
      stages = { { name = "a", recipe = "./deep" }, { name = "b", recipe = "./deep", lr = 0.25, model = { depth = 3 } } } }]])
    for name, want in pairs { a = { 4, 8, 1e-4 }, b = { 4, 12, 0.25 } } do
      local s = settings.bake(dir.path .. "/outer.lua", {}, { child = false, stage = name })
      assert.same(want, { s.bucket_config["32px"][6][2], s.warmup_steps, s.optim.betas[2] })
    end
    local code, fault = dir:fault("return recipe { warmup_steps = function(r) return r.nothing.at "
      .. "end,\n stages = { { name = 'a' } } }")
    assert.equal(3, code)
    assert.matches("main.lua:1: .*nothing", fault)
  end)

  it("note an argument for all that a stage does not read, and refuse one for the stage",
    function()
    local s = stage("a", { "max_lr=1" })
    assert.matches("max_lr=1: max_lr is read only when lr_schedule is",
      table.concat(s.notes, "\n", 1, #s.notes))
    local code, fault = dir:fault("return recipe { stages = { { name = 'a' } } }",
      { "stages.a.max_lr=1" })
    assert.equal(2, code)
    assert.matches("stages.a.max_lr=1: max_lr is read only when lr_schedule is", fault)
  end)

  it("cannot be trained as a single run", function()
    local s = settings.bake(dir:write("outer.lua", outer), {}, { child = false })
    local ok, problem = pcall(require("moonreel.trainer").run, s)
    assert.is_false(ok)
    assert.matches("a recipe with stages is trained by moonreel.trainer.stages", problem.message)
  end)
end)

describe("opensora-1.2/lambda/tutorial", function()
  it("trains 5, 5, 5, 3, 1, 1, 3 epochs, each stage from the one before", function()
    local s = settings.bake "opensora-1.2/lambda/tutorial"
    local epochs = {}
    for i, one in ipairs(s:plain("stages")) do
      local stage = settings.bake("opensora-1.2/lambda/tutorial", nil, { stage = one.name })
      epochs[i] = stage.epochs
      assert.equal(i == 1 and "pretrained_models/PixArt-Sigma-XL-2-2K-MS.pth" or "recipe.previous",
        stage.ckpt_path)
    end
    assert.same({ 5, 5, 5, 3, 1, 1, 3 }, epochs)
  end)
end)
