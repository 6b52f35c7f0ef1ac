-- Covers: lua/moonreel/models/stdit3/blocks.lua lua/moonreel/nn/init.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ops = require "moonreel.core.op"
local stdit3 = require "moonreel.models.stdit3"
local regions = require "moonreel.optim.regions"

local function declare(config)
  local params = G.params("f32")
  stdit3.new(params, config)
  params:seal()
  local by_name, trained, all = {}, 0, 0
  for _, p in ipairs(params:list()) do
    by_name[p.name] = p
    if not p.buffer then
      all = all + p.count
    end
    if not p.frozen then
      trained = trained + p.count
    end
  end
  return params, by_name, trained, all
end

local TINY = {depth = 1, hidden_size = 16, num_heads = 2, in_channels = 4,
  caption_channels = 8, model_max_length = 6}

local function tiny(change)
  local c = {}
  for k, v in pairs(TINY) do
    c[k] = v
  end
  for k, v in pairs(change or {}) do
    c[k] = v
  end
  return c
end

local function rms(params, name)
  local sum, n = 0, 0
  for _, v in ipairs(params:initial(name, 1):totable()) do
    sum, n = sum + v * v, n + 1
  end
  return (sum / n) ^ 0.5
end

describe("models.stdit3", function()
  it("has the released number of parameters", function()
    local _, _, trained, all = declare{type = "STDiT3-XL/2", freeze_y_embedder = true}
    assert.equal(1207643972, all)
    assert.equal(1201595936, trained)
    _, _, trained, all = declare{type = "STDiT3-3B/2", freeze_y_embedder = true}
    assert.equal(3182211572, all)
    assert.equal(3171035696, trained)
  end)

  it("has the released names and shapes", function()
    local _, p = declare(tiny())
    local shapes = {["x_embedder.proj.weight"] = "16,4,1,2,2",
      ["t_embedder.mlp.0.weight"] = "16,256", ["fps_embedder.mlp.2.bias"] = "16",
      ["t_block.1.weight"] = "96,16", ["y_embedder.y_embedding"] = "6,8",
        ["y_embedder.y_proj.fc1.weight"] = "16,8", ["rope.freqs"] = "4",
      ["spatial_blocks.0.scale_shift_table"] = "6,16",
        ["temporal_blocks.0.attn.qkv.weight"] = "48,16",
      ["temporal_blocks.0.attn.q_norm.weight"] = "8",
        ["spatial_blocks.0.cross_attn.kv_linear.bias"] = "32",
      ["spatial_blocks.0.mlp.fc1.weight"] = "64,16", ["final_layer.scale_shift_table"] = "2,16",
        ["final_layer.linear.weight"] = "32,16"}
    for name, shape in pairs(shapes) do
      assert.truthy(p[name], name)
      assert.equal(shape, table.concat(p[name].shape, ","), name)
    end
    assert.is_nil(p["spatial_blocks.0.cross_attn.q_norm.weight"])
  end)

  it("starts as the reference: temporal blocks are the identity, the rate has no effect",
    function()
    local params = declare(tiny())
    for _, name in ipairs{"temporal_blocks.0.attn.proj.weight",
        "temporal_blocks.0.cross_attn.proj.weight", "temporal_blocks.0.mlp.fc2.weight",
      "fps_embedder.mlp.2.weight", "fps_embedder.mlp.2.bias", "spatial_blocks.0.attn.qkv.bias"} do
      assert.equal(0, rms(params, name), name)
    end
    assert.near((6 / 64) ^ 0.5 / 3 ^ 0.5, rms(params, "spatial_blocks.0.attn.qkv.weight"), 0.02)
    assert.near(0.25 / 3 ^ 0.5, rms(params, "x_embedder.proj.weight"), 0.02)
    assert.near(0.25, rms(params, "spatial_blocks.0.scale_shift_table"), 0.06)
    assert.near(0.02, rms(params, "fps_embedder.mlp.0.weight"), 0.002)
    assert.equal(1, rms(params, "spatial_blocks.0.attn.q_norm.weight"))
    assert.is_true(rms(params, "final_layer.linear.weight") > 0.1)
  end)

  it("freezes the parameters that its fields name", function()
    local _, p = declare(tiny{only_train_temporal = true})
    assert.is_true(p["spatial_blocks.0.mlp.fc1.weight"].frozen)
    assert.is_false(p["temporal_blocks.0.mlp.fc1.weight"].frozen)
    _, p = declare(tiny{freeze_y_embedder = true})
    assert.is_true(p["y_embedder.y_proj.fc2.bias"].frozen)
    assert.is_true(p["rope.freqs"].frozen)
    assert.is_true(p["y_embedder.y_embedding"].buffer)
  end)

  it("refuses sizes that do not divide, by field", function()
    assert.matches("hidden_size 18 is not a multiple of num_heads 4",
      tostring(select(2, pcall(declare, tiny{hidden_size = 18, num_heads = 4}))))
    for _, c in ipairs { { hidden_size = 24, num_heads = 4, linear = "f8" },
        { hidden_size = 32, num_heads = 4, mlp_ratio = 2.25, linear = "f8" } } do
      assert.matches("model: linear = f8 needs widths that are multiples of 16; hidden_size",
        tostring(select(2, pcall(declare, tiny(c)))))
    end
    declare(tiny{hidden_size = 32, num_heads = 4, linear = "f8"})
    assert.matches("temporal_pos is 'learned'",
      tostring(select(2, pcall(declare, tiny{temporal_pos = "learned"}))))
  end)

  -- output of a model with random weights; `change` of the config
  local function output(change, x_mask)
    local params = G.params("f32")
    local net = stdit3.new(params, tiny(change))
    params:seal()
    local run = E.new(E.device("cpu", 1), params, {})
    run:init(1)
    -- zero weights would hide errors
    for i, p in ipairs(params:list()) do
      if not p.frozen then
        run:set_param("w", p.name, T.new("f32", p.shape):fill_normal(2, "w", i) * 0.2)
      end
    end
    local g = G.graph(params)
    g:output("out", net:forward(g, {x = g:input("x", "f32", {1, 4, 3, 4, 4}),
      t = g:input("t", "f32", {1}), fps = g:input("fps", "f32", {1}),
      y = g:input("y", "f32", {1, 6, 8}), x_mask = x_mask and g:input("x_mask", "bool", {1, 3})
        or nil, height = 32, width = 32}))
    g:finish()
    local prog = run:compile(g)
    prog:set("x", T.new("f32", {1, 4, 3, 4, 4}):fill_normal(3, "x"))
    prog:set("t", T.from({1}, {500}))
    prog:set("fps", T.from({1}, {24}))
    prog:set("y", T.new("f32", {1, 6, 8}):fill_normal(3, "y"))
    if x_mask then
      prog:set("x_mask", T.from({1, 3}, x_mask, "bool"))
    end
    prog:run()
    return prog:get("out")
  end

  local function differs(a, b)
    local x, y, worst = a:totable(), b:totable(), 0
    for i = 1, #x do
      worst = math.max(worst, math.abs(x[i] - y[i]))
    end
    return worst > 1e-4
  end

  it("normalises clean frames twice only under compat, and noised frames always once", function()
    local mask = {1, 0, 1}
    local right, quirk = output({}, mask), output({compat = true}, mask)
    assert.is_true(differs(right:slice(2, 1, 2), quirk:slice(2, 1, 2)))
    assert.is_false(differs(right:slice(2, 0, 1), quirk:slice(2, 0, 1)))
  end)

  -- number of ops in a forward pass that multiply in 8 bits, and of other linear layers
  local function linear_layers(linear)
    local params <close> = G.params("f32")
    local net = stdit3.new(params, tiny{linear = linear})
    params:seal()
    local g <close> = G.graph(params)
    g:output("out", net:forward(g, {x = g:input("x", "f32", {1, 4, 3, 4, 4}),
      t = g:input("t", "f32", {1}), fps = g:input("fps", "f32", {1}),
      y = g:input("y", "f32", {1, 6, 8}), height = 32, width = 32}))
    g:finish()
    local run <close> = E.new(E.device("cpu", 1), params, {})
    local prog <close> = run:compile(g)
    local f8, others = 0, 0
    for _, row in ipairs(prog:times()) do
      f8 = f8 + (row.op == "linear_f8" and 1 or 0)
      others = others + (row.op:find "^linear" and row.op ~= "linear_f8" and 1 or 0)
    end
    return f8, others
  end

  it("multiplies in 8 bits in all its blocks and only there", function()
    local none, all = linear_layers(nil)
    local f8, rest = linear_layers("f8")
    assert.equal(0, none)
    -- qkv, proj; q, kv, proj of cross attention; fc1, fc2: of a spatial and a temporal block
    assert.equal(2 * 7, f8)
    assert.equal(all, f8 + rest)
  end)

  -- bytes of the output of a bf16 model; `io`: t, fps, height, width
  local function bf16_output(compat, io)
    local params = G.params("bf16")
    local net = stdit3.new(params, tiny{compat = compat})
    params:seal()
    local run = E.new(E.device("cpu", 1), params, {})
    run:init(1)
    for i, p in ipairs(params:list()) do
      if not p.frozen then
        run:set_param("w", p.name, T.new("f32", p.shape):fill_normal(2, "w", i) * 0.2)
      end
    end
    local g = G.graph(params)
    local function const(stream, shape)
      return g:const(T.new("f32", shape):fill_normal(3, stream))
    end
    g:output("out", net:forward(g, {x = const("x", {1, 4, 2, 4, 4}), y = const("y", {1, 6, 8}),
      t = g:const(T.from({1}, {io.t})), fps = g:const(T.from({1}, {io.fps})),
      height = io.height, width = io.width}))
    g:finish()
    local prog = run:compile(g)
    prog:run()
    return prog:get("out"):bytes()
  end

  it("rounds time, rate and size to bf16 under compat when it computes in bf16", function()
    -- spacing of bf16: 4 for t and sizes from 512 on, 1/8 for the rate
    local given = {t = 731.25, fps = 23.97, height = 480, width = 854}
    local held = {t = 732, fps = 24, height = 480, width = 856}
    assert.is_true(bf16_output(true, given) == bf16_output(true, held))
    assert.is_false(bf16_output(false, given) == bf16_output(false, held))
    for _, one in ipairs{"t", "fps", "width"} do
      local other = setmetatable({[one] = one == "fps" and 30 or 512}, {__index = given})
      assert.is_false(bf16_output(true, given) == bf16_output(true, other), one)
    end
  end)

  it("adds a frame index when temporal_pos is set", function()
    assert.is_true(differs(output{}, output{temporal_pos = "sincos"}))
  end)

  -- slope of the loss along a random direction of all weights: from the gradient, and from two
  -- losses
  local function slopes(change, dims)
    local params = G.params("f32")
    local net = stdit3.new(params, tiny(change))
    params:seal()
    local run = E.new(E.device("cpu", 1), params, {regions = regions.gradients()})
    run:init(1)
    local n = params:elements(false)
    local at, way = T.new("f32", {n}):fill_normal(2, "w") * 0.2,
      T.new("f32", {n}):fill_normal(2, "way")
    local g = G.graph(params)
    local x = g:input("x", "f32", dims)
    local mask = change.masked and g:input("x_mask", "bool",
      {dims[1], -(-dims[3] // change.patch_size[1])}) or nil
    local out = net:forward(g, {x = x, t = g:input("t", "f32", {dims[1]}),
      fps = g:input("fps", "f32", {dims[1]}),
      y = g:input("y", "f32", {dims[1], 6, 8}), x_mask = mask, height = 32, width = 48})
    local loss = ops.mean(out * out, {axes = {0, 1, 2, 3, 4}})
    g:output("loss", loss)
    g:backward(loss, {})
    g:finish()
    local prog = run:compile(g)
    prog:set("x", T.new("f32", dims):fill_normal(3, "x"))
    prog:set("t", T.from({dims[1]}, {500, 20}))
    prog:set("fps", T.from({dims[1]}, {24, 8}))
    prog:set("y", T.new("f32", {dims[1], 6, 8}):fill_normal(3, "y"))
    if mask then
      local flags = {}
      for i = 1, mask.shape[1] * mask.shape[2] do
        flags[i] = i % 2
      end
      prog:set("x_mask", T.from(mask.shape, flags, "bool"))
    end
    local function loss_at(weights)
      run:write("w", 0, weights)
      prog:run()
      return prog:get("loss"):item()
    end
    local eps = 2e-4
    local numeric = (loss_at(at + way * eps) - loss_at(at - way * eps)) / (2 * eps)
    run:write("grad", 0, T.new("f32", {n}))
    loss_at(at)
    return ops.sum(run:read("grad", "f32", 0, {n}) * way, {axes = {0}}):item(), numeric
  end

  it("computes the gradient of its loss, with and without q/k norm, patches in time, frame "
    .. "masks", function()
    for _, case in ipairs{{{}, {2, 4, 3, 4, 6}}, {{qk_norm = false}, {2, 4, 3, 4, 6}},
        {{patch_size = {2, 2, 2}, masked = true}, {2, 4, 5, 5, 3}},
      {{patch_size = {1, 1, 1}, mlp_ratio = 2.5, pred_sigma = false, temporal_pos = "sincos"},
        {2, 4, 2, 3, 5}}} do
      local analytic, numeric = slopes(case[1], case[2])
      -- the difference of two f32 losses has about three digits
      assert.near(1, analytic / numeric, 2e-2)
    end
  end)

  it("reports the line of the model and both shapes when text does not fit", function()
    local params = G.params("f32")
    local net = stdit3.new(params, tiny())
    params:seal()
    local g = G.graph(params)
    local ok, err = pcall(net.forward, net, g,
      {x = g:input("x", "f32", {1, 4, 3, 4, 4}), t = g:input("t", "f32", {1}),
      fps = g:input("fps", "f32", {1}), y = g:input("y", "f32", {1, 6, 9}),
        height = 32, width = 32})
    assert.is_false(ok)
    assert.equal("MR_E_SHAPE", err.code)
    assert.matches("linear", err.message)
    assert.matches("stdit3/init%.lua:%d+", err.message)
    assert.matches("%[16, 8%]", err.message)
    assert.matches("%[1, 6, 9%]", err.message)
  end)
end)
