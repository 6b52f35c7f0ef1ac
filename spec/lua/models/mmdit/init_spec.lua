--- MMDiT: odd sizes of latents, checks of its inputs, recomputation, 8 bits, and errors. Reference
-- values of other programs: make golden.
-- Covers: lua/moonreel/models/mmdit/init.lua lua/moonreel/models/mmdit/blocks.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local fails = require "spec.support.fails"
local mmdit = require "moonreel.models.mmdit"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"
local small = require "spec.support.small_mmdit"

describe("MMDiT", function()
  -- loss, gradient of x and gradients of all weights of one pass
  local function pass(change, given, recompute)
    local params = G.params "f32"
    local net = mmdit.new(params, nn.merged(small, change))
    params:seal()
    local run <close> = E.new(E.device("cpu", 1), params, { regions = regions.gradients() })
    run:init(1)
    local g, io = G.graph(params), {}
    local inputs = nn.merged({ x = { 2, 3, 2, 3, 5 }, t = { 2 }, y = { 2, 4, 10 },
      vector = { 2, 1, 8 } }, given)
    for name, shape in pairs(inputs) do
      io[name] = g:input(name, "f32", shape)
    end
    io.recompute = recompute
    local out = net:forward(g, io)
    assert.same(inputs.x, out.shape)
    local loss = ops.mean(out * out)
    g:output("loss", loss)
    g:output("dx", g:backward(loss, { io.x })[1])
    g:finish()
    local prog, f8 = run:compile(g), 0
    for _, row in ipairs(prog:times()) do
      f8 = f8 + (row.op == "linear_f8" and not row.backward and 1 or 0)
    end
    for i, name in ipairs { "x", "t", "y", "vector", "cond", "guidance" } do
      if inputs[name] then
        prog:set(name, T.new("f32", inputs[name]):fill_normal(i, "mmdit_spec"))
      end
    end
    prog:run()
    return { prog:get("loss"):totable(), prog:get("dx"):totable(),
      run:read("grad", "f32", 0, { params:elements() }):totable(), f8 = f8 }
  end

  it("accepts latents of any size, and cuts off what patches add", function()
    local row = pass()
    assert.is_true(row[1][1] > 0)
    assert.equal(2 * 3 * 2 * 3 * 5, #row[2])
  end)

  it("starts with the reference's uniform distribution, also for biases", function()
    local params = G.params "f32"
    mmdit.new(params, nn.merged(small, { cond_embed = true }))
    params:seal()
    local run <close> = E.new(E.device("cpu", 1), params, {})
    run:init(1)
    local inputs = {}
    for _, p in ipairs(params:list()) do
      local name, kind = p.name:match "^(.*)%.(%a+)$"
      inputs[name] = kind == "weight" and p.shape[2] or inputs[name]
    end
    for _, p in ipairs(params:list()) do
      local t, layer = run:param("w", p.name), p.name:match "^(.*)%.%a+$"
      if p.name:find "norm%.scale$" then
        assert.same({ 1, 1 }, { t:min(), t:max() }, p.name)
      elseif layer == "cond_in" then
        assert.equal(0, t:norm(), p.name)
      else
        local most = inputs[layer] ^ -0.5
        assert.is_true(t:max() <= most and t:max() > 0.3 * most and t:min() >= -most
          and t:min() < -0.3 * most, p.name)
      end
    end
  end)

  it("divides queries and keys by their root mean square with an epsilon of 1e-6", function()
    local seen, build = 0, ops.qk_norm
    ops.qk_norm = function(x, w, a, b, options)
      seen = seen + 1
      assert.equal(1e-6, options.eps)
      return build(x, w, a, b, options)
    end
    local good, problem = pcall(pass)
    ops.qk_norm = build
    assert.is_true(good, problem)
    assert.is_true(seen >= 2 * 2 + 2 * 2)
  end)

  it("has the same bits when all blocks are recomputed", function()
    local seen = {}
    local again = pass({}, {}, function(kind, i)
      seen[#seen + 1] = { kind, i }
      return true
    end)
    assert.same({ { 1, 0 }, { 2, 0 }, { 2, 1 } }, seen)
    assert.same(pass(), again)
  end)

  it("multiplies tokens with 8 bits in its blocks only", function()
    local plain, eight = pass(), pass { linear = "f8" }
    -- queries, keys and values, the layer after attention, an MLP: in two streams, then in one
    assert.same({ 0, 2 * 4 + 2 * 2 }, { plain.f8, eight.f8 })
    assert.near(1, eight[1][1] / plain[1][1], 0.1)
    assert.not_same(plain[1], eight[1])
    local again = pass({ linear = "f8" }, {}, function() return true end)
    assert.same(eight[3], again[3])
  end)

  it("adds a condition, which has no effect at first, and a guidance, which has one", function()
    local plain = pass()
    local with = pass({ cond_embed = true }, { cond = { 2, 4, 2, 3, 5 } })
    assert.same(plain[1], with[1])
    local guided = pass({ guidance_embed = true }, { guidance = { 2 } })
    assert.not_same(plain[1], guided[1])
  end)

  it("reports inputs that it lacks or does not use", function()
    fails("MR_E_USAGE", "model%.cond_embed is true, but there is no condition", pass,
      { cond_embed = true })
    fails("MR_E_USAGE", "there is a condition for the model, but model%.cond_embed is false", pass,
      {}, { cond = { 2, 4, 2, 3, 5 } })
    fails("MR_E_USAGE", "model%.guidance_embed is true, but there is no guidance", pass,
      { guidance_embed = true })
    fails("MR_E_USAGE", "there is a guidance for the model, but model%.guidance_embed is false",
      pass, {}, { guidance = { 2 } })
  end)

  it("reports sizes that contradict each other", function()
    for text, change in pairs {
      ["hidden_size 33 is not a multiple of num_heads 2"] = { hidden_size = 33 },
      ["entry 2 of axes_dim is 5; expected an even number"] = { axes_dim = { 4, 5, 6 } },
      ["entry 3 of axes_dim is 0; expected an even number"] = { axes_dim = { 8, 8, 0 } },
      ["mlp_ratio is 0, which turns 32 channels into 0 in the MLP"] = { mlp_ratio = 0 },
      ["mlp_ratio is 1e%+300, which turns"] = { mlp_ratio = 1e300 },
      ["axes_dim has 3 entries with sum 18; expected 3 with sum 16, which is hidden_size 32 over "
        .. "num_heads 2"] = { axes_dim = { 4, 6, 8 } },
      ["in_channels is 10; expected a multiple of 4, the cells of a patch"] =
        { in_channels = 10 },
      ["linear = f8 needs widths that are multiples of 16; hidden_size is 32, times "
        .. "mlp_ratio 40"] = { linear = "f8", mlp_ratio = 1.25 },
    } do
      fails("MR_E_RECIPE", text, mmdit.new, G.params "f32", nn.merged(small, change))
    end
  end)

  it("matches the other models of a run, or reports the field", function()
    local function agree(parts)
      return mmdit.agree, small, nn.merged({ channels = 3, width = 10, vector = 8 }, parts)
    end
    local f, config, parts = agree()
    f(config, parts)
    fails("MR_E_RECIPE", "model%.in_channels is 12, but the autoencoder gives 4 channels and "
      .. "patch_size = 2 makes them 16; try: model%.in_channels = 16", agree { channels = 4 })
    fails("MR_E_RECIPE", "model%.context_in_dim is 10, but the text encoder gives 9; try: ",
      agree { width = 9 })
    fails("MR_E_RECIPE", "model%.vec_in_dim is 8, but the second text encoder gives 7",
      agree { vector = 7 })
    parts.vector = nil
    fails("MR_E_RECIPE", "needs a vector of each caption, but clip is not set", f, config, parts)
  end)
end)
