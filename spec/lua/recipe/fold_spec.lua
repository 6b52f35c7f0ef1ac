--- Rules for merging a stronger layer into a weaker one.
-- Covers: lua/moonreel/recipe/defaults.lua lua/moonreel/recipe/late.lua
-- lua/moonreel/recipe/layer.lua lua/moonreel/recipe/marker.lua lua/moonreel/recipe/view.lua
-- lua/moonreel/settings/bake.lua
local folder = require "spec.support.folder"

describe("merging", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  -- bakes a child over a base
  local function over(base, child, overrides)
    dir:write("base.lua", "return recipe " .. base)
    return dir:bake('return recipe.extend("./base") ' .. child, overrides)
  end
  local function fault_over(base, child, overrides)
    dir:write("base.lua", "return recipe " .. base)
    return dir:fault('return recipe.extend("./base") ' .. child, overrides)
  end

  it("combines records by field and open maps by key, and replaces lists", function()
    local s = over('{ optim = { lr = 1, betas = { 0.8, 0.9 } }, bucket_config = { ["256"] = { [1] '
      .. '= { 1.0, 4 }, [51] = { 0.5, 2 } } } }',
      '{ optim = { eps = 2, betas = { 0.1, 0.2 } }, bucket_config = { ["256"] = { [51] = { 0.25, 1 } }, ["512"] = { [1] = { 1, 1 } } } }')
    assert.equal(1.0, s.optim.lr)
    assert.equal(2.0, s.optim.eps)
    assert.same({ 0.1, 0.2 }, s:get("optim.betas"))
    assert.same({ ["256"] = { [1] = { 1.0, 4 }, [51] = { 0.25, 1 } },
      ["512"] = { [1] = { 1.0, 1 } } }, s:get("bucket_config"))
  end)

  it("resets a field to its default, or removes an entry, by recipe.remove", function()
    local s = over('{ lr = 1, mask_ratios = { random = 0.5, identity = 0.5 }, bucket_config = { a '
      .. '= { [1] = { 1, 1 } }, b = { [1] = { 1, 1 } } } }',
      "{ lr = recipe.remove, mask_ratios = recipe.remove, bucket_config = { a = recipe.remove } }")
    assert.equal(1e-4, s.optim.lr)
    assert.is_nil(s.mask_ratios)
    assert.same({ b = { [1] = { 1.0, 1 } } }, s:get("bucket_config"))
  end)

  it("resets a record by recipe.remove, and functions do not see removed entries", function()
    local s = over("{ optim = { lr = 1, eps = 3, betas = { 0.1, 0.2 } } }",
      "{ optim = recipe.remove }")
    assert.same({ 1e-4, 1e-8, 0.9 }, { s.optim.lr, s.optim.eps, s.optim.betas[1] })
    s = over("{ bucket_config = { a = { [1] = { 1, 1 } }, b = { [1] = { 1, 1 }, [2] = { 1, 1 } } } }",
      [[{ bucket_config = { a = recipe.remove, b = { [2] = recipe.remove } },
      name = function(r) local n = "" for k, v in pairs(r.bucket_config) do
        n = n .. k for f in pairs(v) do n = n .. f end end return n end }]])
    assert.equal("b1", s.name)
    assert.same({ "bucket_config.a.1", "bucket_config.b.2" },
      { s:removed()[1].path, s:removed()[2].path })
  end)

  it("sets a field to none by recipe.none if the field allows it, also inside lists", function()
    local s = over('{ warmup_steps = 5, bucket_config = { a = { [1] = { 1, 1 } } } }',
      "{ warmup_steps = recipe.none, bucket_config = { a = { [1] = { 0.0, recipe.none } } } }")
    assert.is_nil(s.warmup_steps)
    assert.same({ 0.0 }, s:get("bucket_config.a.1"))
    assert.is_nil(over('{ mask_ratios = { random = 1 } }',
      "{ mask_ratios = recipe.none }").mask_ratios)
    local code, fault = fault_over("{}", "{ lr = recipe.none }")
    assert.equal(3, code)
    assert.equal("main.lua:1: optim.lr: expected number of at least 0, got none", fault)
    -- a record always has its fields
    code, fault = fault_over("{}", "{ optim = recipe.none }")
    assert.equal(3, code)
    assert.equal("main.lua:1: optim: expected a table of fields, got none", fault)
  end)

  it("adds entries to a map that was none", function()
    local s = over('{ mask_ratios = recipe.none }', "{ mask_ratios = { random = 1 } }")
    assert.same({ random = 1.0 }, s:get("mask_ratios"))
  end)

  it("drops inherited values by recipe.replace: maps become empty, records default",
    function()
    local s = over('{ optim = { lr = 1, eps = 3 }, mask_ratios = { random = 0.5, image_head = 0.1 '
      .. '} }',
      "{ optim = recipe.replace { lr = 2 }, mask_ratios = recipe.replace { identity = 1 } }")
    assert.same({ 2.0, 1e-8 }, { s.optim.lr, s.optim.eps })
    assert.same({ identity = 1.0 }, s:get("mask_ratios"))
    -- default maps are dropped as well
    assert.same({ small = { pixels = 4, aspects = { { 1.0, 2, 2 } } } },
      dir:bake("return recipe { resolutions = recipe.replace { small = { pixels = 4, aspects = { { "
        .. "1, 2, 2 } } } } }"):get("resolutions"))
  end)

  it("gives no default to an entry of a default map that was replaced", function()
    local s = dir:bake('return recipe { resolutions = recipe.replace { ["144p"] = { pixels = 5 } '
      .. '} }')
    assert.same({ ["144p"] = { pixels = 5 } }, s:get("resolutions"))
  end)

  it("adds entries to a default map", function()
    local s = dir:bake('return recipe { resolutions = { small = { pixels = 4, aspects = { { 1, 2, '
      .. '2 } } } } }')
    assert.equal(4, s.resolutions.small.pixels)
    assert.equal(36864, s.resolutions["144p"].pixels)
  end)

  it("proposes replace when type changes over inherited fields of another type", function()
    local base = '{ vae = { type = "OpenSoraVAE_V1_2", micro_frame_size = 17 } }'
    local code, fault = fault_over(base, '{ vae = { type = "dct" } }')
    assert.equal(3, code)
    assert.equal('base.lua:1: vae.micro_frame_size: vae has no such field; its type is "dct" by '
      .. 'main.lua:1\n' ..
      '  try: vae = recipe.replace { type = "dct", ... }, which drops inherited fields', fault)
    local s = over(base, '{ vae = recipe.replace { type = "dct" } }')
    assert.equal("dct", s.vae.type)
    assert.equal("OpenSoraVAE_V1_2", over(base, "{}").vae.type)
  end)

  it("proposes replace when type changes over an inherited field of another kind", function()
    local base = '{ model = { type = "STDiT3",\n patch_size = { 1, 1, 1 } } }'
    local _, fault = fault_over(base, '{ model = { type = "flux" } }')
    assert.equal('base.lua:2: model.patch_size: expected integer of at least 1, got { 1, 1, 1 }; '
      .. 'its type is "flux" by main.lua:1\n' ..
      '  try: model = recipe.replace { type = "flux", ... }, which drops inherited fields', fault)
    assert.equal(2, over(base, '{ model = recipe.replace { type = "flux" } }').model.patch_size)
    -- no proposal when the same file sets both
    local _, own = fault_over("{}", '{ model = { type = "flux", patch_size = { 1, 1, 1 } } }')
    assert.equal("main.lua:1: model.patch_size: expected integer of at least 1, got { 1, 1, 1 }",
      own)
  end)

  it("takes the defaults of a record from its type", function()
    assert.equal(1872,
      dir:bake('return recipe { model = { type = "STDiT3-3B/2" } }').model.hidden_size)
    assert.equal(1152, dir:bake("return recipe {}").model.hidden_size)
    assert.equal(1872, dir:bake("return recipe {}", { "model.type=STDiT3-3B/2" }).model.hidden_size)
  end)

  it("also checks values that a stronger layer hides", function()
    local code, fault = fault_over('{ lr = "fast" }', "{ lr = 1 }")
    assert.equal(3, code)
    assert.equal('base.lua:1: optim.lr: expected number of at least 0, got text "fast"', fault)
  end)
end)

describe("kinds", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("accept integral numbers of either subtype as integers, any number as a double", function()
    local s = dir:bake("return recipe { seed = 1024^2, epochs = 1e3, lr = 4 }")
    assert.equal("integer", math.type(s.seed))
    assert.equal(1048576, s.seed)
    assert.equal("integer", math.type(s.epochs))
    assert.equal("float", math.type(s.optim.lr))
  end)

  it("report the line of a wrong kind", function()
    for text, want in pairs {
      ["seed = 1.5"] = "seed: expected integer of at least 0, got number 1.5",
      ['seed = "7"'] = 'seed: expected integer of at least 0, got text "7"',
      ["lr = true"] = "optim.lr: expected number of at least 0, got boolean true",
      ["lr = -1"] = "optim.lr: expected number of at least 0, got number -1",
      ["lr = 0/0"] = "optim.lr: expected number of at least 0, got number nan",
      ['grad_checkpoint = "yes"'] = 'grad_checkpoint: expected true or false, got text "yes"',
      ['dtype = "fp16"'] = 'dtype: expected one of "bf16", "fp32", got text "fp16"',
      ["outputs = 3"] = "outputs: expected text, got number 3",
      ["optim = { betas = { 0.9 } }"] = "optim.betas: expected a list of 2 number from 0 to 1, got "
        .. "{ 0.9 }",
      ["optim = { betas = { 0.9, 2 } }"] = "optim.betas: expected a list of 2 number from 0 to 1, "
        .. "got { 0.9, 2 }",
      ["optim = 5"] = "optim: expected a table of fields, got number 5",
      ["optim = { 5 }"] = "optim: a record has named fields, got element [1]",
      ["bucket_config = 3"] = "bucket_config: expected a table with text keys, or none, got number "
        .. "3",
      ["bucket_config = { [256] = {} }"] = 'bucket_config: expected text keys, got [256]; write '
        .. '["256"]',
      ['bucket_config = { a = { x = { 1, 1 } } }'] =
        'bucket_config.a: expected integer keys of at least 1, got "x"',
      ['bucket_config = { a = { [0] = { 1, 1 } } }'] =
        'bucket_config.a: expected integer keys of at least 1, got 0',
      ["bucket_config = { a = { [1] = { 2, 1 } } }"] = "bucket_config.a.1: expected {keep, batch} "
        .. "or {{keep, try}, batch} with shares from 0 to 1 and a batch of at least 1, got { 2, 1 }",
      ["bucket_config = { a = { [1] = { 0.5 } } }"] = "bucket_config.a.1: expected {keep, batch} "
        .. "or {{keep, try}, batch} with shares from 0 to 1 and a batch of at least 1, got { 0.5 }",
      ["mask_ratios = { randon = 1 }"] = "mask_ratios.randon is not known, did you mean 'random'?",
      ["lrr = 1"] = "lrr is not a field, did you mean 'lr'?",
      ["nothing_like_it = 1"] = "nothing_like_it is not a field",
      ["model = { dept = 3 }"] = "model.dept is not a field, did you mean 'model.depth'?",
      ["depth = 3"] = "depth is not a field, did you mean 'model.depth'?",
      ['lr = 1, ["optim"] = { lr = 2 }'] = "optim.lr is written twice, here as 'optim', and at "
        .. "main.lua:2; write one of the two",
      ["lr = 1, adam_eps = 2, optim = function() return {} end"] =
        "optim is written twice, here as 'optim', and at main.lua:2",
    } do
      local code, fault = dir:fault("return recipe {\n  " .. text .. ",\n}")
      assert.equal(3, code, text .. fault)
      assert.equal("main.lua:2: ", fault:sub(1, 12), text)
      assert.is_truthy(fault:find(want, 1, true), text .. ": " .. fault)
    end
  end)

  it("map spellings layer by layer, so the later layer wins under any spelling", function()
    dir:write("base.lua", "return recipe { optim = { lr = 1, eps = 1 } }")
    local s = dir:bake('return recipe.extend("./base") { lr = 2, ["adam-eps"] = 3, dataset = { '
      .. '["data-path"] = "x" }, grad_ckpt_setting = { 1, 2 } }')
    assert.same({ 2.0, 3.0, "x" }, { s.optim.lr, s.optim.eps, s.dataset.data_path })
    assert.same({ 1, 2 }, s:get("grad_ckpt_settings"))
    assert.equal(2.0, s:get("lr"))
    assert.equal("x.pth",
      dir:bake('return recipe { model = { from_pretrained = "x.pth" } }').ckpt_path)
    assert.equal("dct", dir:bake('return recipe { ae = { type = "dct" } }').vae.type)
  end)
end)

describe("late-bound values", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("get the final recipe, after all overrides, under every spelling", function()
    local text = "return recipe { lr = 1, epochs = 2, warmup_steps = function(r) return r.epochs * "
      .. "80 + r.lr + r.optim.lr end }"
    assert.equal(162, dir:bake(text).warmup_steps)
    assert.equal(330, dir:bake(text, { "epochs=4", "lr=5" }).warmup_steps)
    assert.equal(7, dir:bake(text, { "warmup_steps=7" }).warmup_steps)
  end)

  it("get a private copy of what they replace", function()
    dir:write("base.lua", "local e = { 1, 8 }\nreturn recipe { bucket_config = { a = { [1] = e, "
      .. "[2] = e } } }")
    local s = dir:bake([[return recipe.extend("./base") { bucket_config = { a = function(r, inherited)
      for _, entry in pairs(inherited) do entry[2] = entry[2] // 2 end
      inherited[3] = { 1, 1 }
      return inherited
    end } }]])
    assert.same({ { 1.0, 4 }, { 1.0, 4 }, { 1.0, 1 } }, s:get("bucket_config.a"))
  end)

  it("cannot change a default through their arguments", function()
    dir:bake("return recipe { optim = function(r, was) was.betas[1] = 0.25 return { lr = 1 } end }")
    assert.equal(0.9, dir:bake("return recipe {}").optim.betas[1])
  end)

  it("build on each other through the chain of layers", function()
    dir:write("a.lua", "return recipe { lr = 1 }")
    dir:write("b.lua", 'return recipe.extend("./a") { lr = function(r, was) return was * 10 end }')
    local s = dir:bake('return recipe.extend("./b") { lr = function(r, was) return was + 2 end }')
    assert.equal(12.0, s.optim.lr)
  end)

  it("of maps and records merge as tables do, before keys of the command line",
    function()
    dir:write("a.lua", "return recipe { optim = { lr = 1, eps = 7 }, mask_ratios = { random = 0.5, "
      .. "image_head = 0.5 } }")
    local s = dir:bake([[return recipe.extend("./a") {
      optim = function(r, was) return { lr = was.lr + 1 } end,
      mask_ratios = function(r, was) return { random = was.random / 2, image_head = recipe.remove } end }]], { "optim.eps=9", "mask_ratios.identity=0.75" })
    assert.same({ 2.0, 9.0 }, { s.optim.lr, s.optim.eps })
    assert.same({ random = 0.25, identity = 0.75 }, s:get("mask_ratios"))
  end)

  it("may return markers and replace", function()
    dir:write("a.lua", "return recipe { lr = 1, warmup_steps = 3, mask_ratios = { random = 1 } }")
    local s = dir:bake([[return recipe.extend("./a") { lr = function() return recipe.remove end, warmup_steps = function() return recipe.none end,
      mask_ratios = function() return recipe.replace { identity = 1 } end }]])
    assert.equal(1e-4, s.optim.lr)
    assert.is_nil(s.warmup_steps)
    assert.same({ identity = 1.0 }, s:get("mask_ratios"))
  end)

  it("are called once", function()
    local s = dir:bake([[local calls = 0
      return recipe { bucket_config = function() calls = calls + 1 return { a = { [1] = { 1, calls }, [2] = { 1, calls } } } end,
        steps = function(r) return r.bucket_config.a[1][2] * 10 + calls end }]])
    assert.equal(11, s.steps)
    assert.equal(1, s.bucket_config.a[2][2])
  end)

  it("may be elements of lists", function()
    assert.same({ 0.5, 0.75 }, dir:bake("return recipe { lr = 0.5, optim = { betas = { function(r) "
      .. "return r.lr end, 0.75 } } }"):get("optim.betas"))
  end)

  it("iterate over maps in key order and cannot change the final recipe", function()
    local s = dir:bake([[return recipe { bucket_config = { b = { [1] = { 1, 1 } }, a = { [10] = { 1, 1 }, [9] = { 1, 1 } } },
      name = function(r) local s = "" for k, v in pairs(r.bucket_config) do s = s .. k for n in pairs(v) do s = s .. n end end return s end }]])
    assert.equal("a910b1", s.name)
    local _, fault = dir:fault("return recipe { name = function(r) r.lr = 3 return 'x' end }")
    assert.matches("the final recipe cannot be changed", fault)
    _, fault = dir:fault("return recipe { name = function(r) return r.optim.lrr end }")
    assert.matches("optim%.lrr is not a field, did you mean 'optim%.lr'%?", fault)
  end)

  it("that depend on each other in a cycle are refused with the cycle", function()
    local code, fault = dir:fault("return recipe {\n  steps = function(r) return r.epochs end,\n  "
      .. "epochs = function(r) return r.seed end,\n  seed = function(r) return r.steps end }")
    assert.equal(3, code)
    assert.matches("epochs %(main%.lua:3%) %-> seed %(main%.lua:4%) %-> steps %(main%.lua:2%) %-> "
      .. "epochs$", fault)
    code, fault = dir:fault("return recipe { lr = function(r) return r.lr * 2 end }")
    assert.equal(3, code)
    assert.matches("^main%.lua:1: optim%.lr needs its own value: optim%.lr %(main%.lua:1%) %-> "
      .. "optim%.lr$", fault)
  end)

  it("may not return nil, functions or wrong kinds", function()
    local _, fault = dir:fault("return recipe {\n  lr = function() end }")
    assert.matches("^main%.lua:2: optim%.lr: the function returned nil; try: recipe%.none", fault)
    _, fault = dir:fault("return recipe { lr = function() return function() end end }")
    assert.matches("no setting has a function as its value", fault)
    _, fault = dir:fault("return recipe {\n  lr = function() return 'x' end }")
    assert.equal('main.lua:2: optim.lr: expected number of at least 0, got text "x"', fault)
    _, fault = dir:fault("return recipe {\n  lr = function() error('no rate') end }")
    assert.matches("main%.lua:2: optim%.lr: .*no rate", fault)
  end)

  it("record which fields they read", function()
    local s = dir:bake("return recipe { warmup_steps = function(r) return r.epochs * r.steps end }")
    local chain = s:chain("warmup_steps")
    assert.same({ "epochs", "steps" }, chain[#chain].reads)
  end)
end)
