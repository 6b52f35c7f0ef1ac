--- The perceptual loss: files of the released form and of others, and the contents of a checkpoint.
-- Reference values of other programs: make golden.
-- Covers: lua/moonreel/losses/perceptual.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local perceptual = require "moonreel.losses.perceptual"
local state = require "moonreel.trainer.state"
local vgg = require "spec.support.vgg"

describe("the perceptual loss", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  local function files(name, change)
    local path = dir.path .. "/" .. name
    require("moonreel.core.base").make_dir(path)
    return vgg.write(path, 4, change)
  end

  -- a network with the weights of these files
  local function opened(given)
    local params = G.params "f32"
    local net = perceptual.new(params, given)
    params:seal()
    local run = E.new(E.device("cpu", 1), params, {})
    net:load(run, params)
    return net, params, run
  end

  it("is zero for equal pictures, and grows with their difference", function()
    local net, params, run = opened(files "good")
    local g = G.graph(params)
    local x, y = g:input("x", "f32", { 3, 1, 20, 33, 3 }), g:input("y", "f32", { 3, 1, 20, 33, 3 })
    g:output("d", net:distance(g, x, y))
    g:finish()
    local prog, picture = run:compile(g), T.new("f32", { 3, 1, 20, 33, 3 }):fill_normal(3, "x")
    local noise = T.new("f32", { 1, 1, 20, 33, 3 }):fill_normal(3, "n")
    local other = picture:clone()
    for i, size in ipairs { 0, 0.1, 0.4 } do
      other:slice(0, i - 1, i):copy_from(picture:slice(0, i - 1, i) + noise * size)
    end
    prog:set("x", picture)
    prog:set("y", other)
    prog:run()
    local d = prog:get("d"):totable()
    assert.equal(0, d[1])
    assert.is_true(d[2] > 1e-3 and d[3] > 2 * d[2])
  end)

  it("has a gradient when all features are zero", function()
    local net, params, run = opened(files("dark", function(rows)
      for _, row in ipairs(rows) do
        if row.name:find "bias" then
          row.ptr = (T.new("f32", row.shape) - 9):bytes()
        end
      end
    end))
    local g = G.graph(params)
    local x, y = g:input("x", "f32", { 1, 1, 16, 16, 3 }), g:input("y", "f32", { 1, 1, 16, 16, 3 })
    g:output("dy", g:backward(net:distance(g, x, y):reshape { 1 }, { y })[1])
    g:finish()
    local prog = run:compile(g)
    prog:set("x", T.new("f32", { 1, 1, 16, 16, 3 }))
    prog:set("y", T.new("f32", { 1, 1, 16, 16, 3 }):fill_normal(1, "y"))
    prog:run()
    assert.equal(0, prog:get("dy"):max())
  end)

  it("names a missing file and the folder for it", function()
    local given = files "gone"
    os.remove(given.linear)
    local net = perceptual.new(G.params "f32", given)
    fails("MR_E_CKPT", "vae_loss_config.perceptual_linear: there is no file "
      .. "'.-lpips%.safetensors'.*try: put it there", net.check, net)
    given.network = "nowhere/vgg.pth"
    net = perceptual.new(G.params "f32", given)
    fails("MR_E_CKPT", "perceptual_network: there is no file 'nowhere/vgg%.pth'.-the features of "
      .. "VGG%-16", net.check, net)
  end)

  it("refuses files of another form", function()
    -- VGG-19 has a fourth convolution in the third stage
    local other = files("other", function(rows)
      for _, row in ipairs(rows) do
        row.name = row.name:gsub("features%.17", "features.16")
      end
    end)
    fails("MR_E_CKPT", "perceptual_network: .-'features%.17%.weight' is missing; expected the "
      .. "features of VGG%-16", perceptual.new, G.params "f32", other)
    local linear = files("linear", function(rows, which)
      for _, row in ipairs(which == "linear" and rows or {}) do
        row.shape, row.bytes = { 1, 4, 1, 1 }, 16
        row.ptr = row.ptr:sub(1, 16)
      end
    end)
    fails("MR_E_CKPT", "perceptual_linear: .-'lin1%.model%.1%.weight' is %[1,4,1,1%]; expected "
      .. "the linear layers of LPIPS.-here %[1,8,1,1%]", opened, linear)
  end)

  it("refuses files that cannot be read, or hold other values", function()
    local given = files "cut"
    local text = assert(io.open(given.network, "rb")):read "a"
    given.network = dir:write("cut.safetensors", text:sub(1, 5000))
    fails("MR_E_CKPT", "vae_loss_config%.perceptual_network: .-cut%.safetensors: the tensors "
      .. "have .-; expected the features of VGG%-16", perceptual.new, G.params "f32", given)
    given = files "empty"
    given.linear = dir:write("lpips.pth", "")
    local net = perceptual.new(G.params "f32", given)
    fails("MR_E_CKPT", "vae_loss_config%.perceptual_linear: .-lpips%.pth: 0 bytes.-; expected "
      .. "the linear layers of LPIPS", net.check, net)
    for _, case in ipairs { { "features.2.weight", 0 / 0, "_network: .-'features%.2%.weight' has "
        .. "numbers that are not finite" }, { "lin3.model.1.weight", -1, "_linear: .-'lin3%.model"
        .. "%.1%.weight' has numbers below zero" } } do
      local name, number, refusal = table.unpack(case)
      local other = files(name, function(rows)
        for _, row in ipairs(rows) do
          row.ptr = row.name == name and string.pack("<f", number) .. row.ptr:sub(5) or row.ptr
        end
      end)
      fails("MR_E_CKPT", "vae_loss_config%.perceptual" .. refusal .. "; expected .-; try: another "
        .. "copy of the file", opened, other)
    end
    local bytes = files("bytes", function(rows, which)
      for _, row in ipairs(which == "network" and rows or {}) do
        row.dtype, row.bytes = "u8", row.bytes // 4
        row.ptr = row.ptr:sub(1, row.bytes)
      end
    end)
    fails("MR_E_CKPT", "perceptual_network: .-'features%.0%.weight' is u8; expected floating "
      .. "point numbers", opened, bytes)
  end)

  it("refuses pictures that are too small", function()
    local params = G.params "f32"
    local net = perceptual.new(params, files "small")
    local g = G.graph(params:seal())
    local x = g:input("x", "f32", { 1, 1, 15, 40, 3 })
    fails("MR_E_SHAPE", "15 x 40; expected at least 16 x 16", net.distance, net, g, x, x)
  end)

  it("is not saved in checkpoints", function()
    local params = G.params "f32"
    params:add { name = "w", shape = { 4 }, init = { kind = "ones" } }
    params:add { name = "scale", shape = { 4 }, init = { kind = "ones" }, frozen = true,
      buffer = true }
    perceptual.new(params, files "kept")
    local run <close> = E.new(E.device("cpu", 1), params:seal(), {})
    run:init(0)
    local names, bytes
    for _, share in ipairs { false, state.share(params, { rank = 0, size = 1, counts = true,
      owned = function() return { { start = 0, stop = 64 } } end }) } do
      names, bytes = {}, 0
      for i, row in ipairs(state.rows(run, params, share or nil)) do
        names[i], bytes = row.name, bytes + row.bytes
      end
      assert.same({ "w", "scale" }, names)
    end
    assert.equal(32, bytes)
    -- with the padding of both
    assert.equal(2 * 64 * 4, state.saved_bytes(run, params))
  end)
end)
