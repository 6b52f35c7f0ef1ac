--- Golden files about start weights: each tensor of the .pth next to them, and the model's output
-- with these weights. The model itself makes the file here, so it must pass.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local folder = dofile "spec/support/folder.lua"
local golden = require "spec.golden.runner"
local stdit3 = require "moonreel.models.stdit3"
local torch = dofile "spec/support/torch_file.lua"

local CONFIG = '{"hidden": 16, "heads": 2, "caption": 6, "text_len": 3, "depth": 1, '
  .. '"qk_norm": false, "size": 64}'

local function model()
  local params = G.params "f32"
  local net = stdit3.new(params, { depth = 1, hidden_size = 16, num_heads = 2,
    patch_size = { 1, 2, 2 }, in_channels = 4, caption_channels = 6, model_max_length = 3,
    input_sq_size = 512, mlp_ratio = 4, pred_sigma = true, qk_norm = false, compat = true })
  params:seal()
  return net, params
end

-- the tensors of a file of images that the model has, by its names
local function weights_of(params, run)
  local list = {}
  for i, p in ipairs(params:list()) do
    local name, found = p.name:gsub("^spatial_blocks%.", "blocks.")
    if found == 1 or name:find("^[xyt]_") or name:find("^final") then
      local t = T.new("f32", p.shape):fill_normal(i, "weights")
      run:set_param(p.frozen and "frozen" or "w", p.name, t)
      if name == "x_embedder.proj.weight" then
        t = t:reshape { 16, 4, 2, 2 }
      end
      list[#list + 1] = { name, t }
    end
  end
  list[#list + 1] = { "pos_embed", T.new("f32", { 1, 2, 16 }) }
  return list
end

local function output(net, params, run, inputs)
  local g = G.graph(params)
  local io = { height = 64, width = 64 }
  for name, t in pairs(inputs) do
    io[name] = g:input(name, t.dtype, t.shape)
  end
  io.text_len = io.len
  g:output("out", net:forward(g, io))
  g:finish()
  local prog = run:compile(g)
  for name, t in pairs(inputs) do
    prog:set(name, t)
  end
  prog:run()
  return prog:get("out")
end

local function write_pth(path, weights)
  local entries, tensors = {}, {}
  for i, row in ipairs(weights) do
    local t, stride, strides = row[2], 1, {}
    for axis = #t.shape, 1, -1 do
      strides[axis], stride = stride, stride * t.shape[axis]
    end
    entries[#entries + 1] = { "a/data/" .. i, t:bytes() }
    tensors[i] = torch.text(row[1]) .. torch.tensor("FloatStorage", tostring(i), stride, 0,
      torch.ints(table.unpack(t.shape)), torch.ints(table.unpack(strides)))
  end
  table.insert(entries, 1, { "a/data.pkl", torch.pickle(torch.dict(torch.text "state_dict"
    .. torch.dict(table.unpack(tensors)))) })
  torch.zip(path, entries)
end

describe("a golden file about start weights", function()
  local dir, weights, rows
  setup(function()
    dir = folder.new()
    local net, params = model()
    local run <close> = E.new(E.device(), params, {})
    run:init(1)
    weights = weights_of(params, run)
    local x = T.new("f32", { 1, 4, 1, 4, 4 }):fill_normal(1, "x")
    local y = T.new("f32", { 1, 3, 6 }):fill_normal(1, "y")
    local pred = output(net, params, run, { x = x, y = y, t = T.from({ 1 }, { 500 }),
      fps = T.from({ 1 }, { 0 }), len = T.from({ 1 }, { 2 }, "i32") })
    rows = { { "in.x", x }, { "in.y", y:reshape { 1, 1, 3, 6 } },
      { "in.t", T.from({ 1 }, { 500 }) }, { "in.mask", T.from({ 1, 3 }, { 1, 1, 0 }, "i32") },
      { "in.height", T.from({ 1 }, { 64 }) }, { "in.width", T.from({ 1 }, { 64 }) },
      { "out.pred", pred } }
    for _, row in ipairs(weights) do
      rows[#rows + 1] = { "weight." .. row[1], row[2] }
    end
  end)
  teardown(function() base.remove_dir(dir.path) end)

  local function judged()
    local list = {}
    for i, row in ipairs(rows) do
      local t = row[2]:clone()
      list[i] = { name = row[1], dtype = t.dtype, shape = t.shape, ptr = t:bytes(),
        bytes = #t:bytes() }
    end
    ckpt.write(dir.path .. "/pixart_mine.safetensors", list, { config = CONFIG })
    local line
    golden.run(dir.path, function(text) line = line or text end)
    return line
  end

  it("passes with its weights next to it", function()
    assert.matches("no %.pth next to it holds its tensors", judged())
    write_pth(dir.path .. "/PixArt-Sigma-mine.pth", weights)
    assert.matches("^PASS pixart_mine 0 0$", judged())
  end)

  it("passes without an output, by tensors that torch saved, with rows cut off or added", function()
    local lines = {}
    golden.run("spec/golden/start", function(line) lines[#lines + 1] = line end)
    assert.same({ "PASS pixart_cut 0 0", "PASS pixart_long 0 0",
      "2 passed, 0 failed, 0 skipped" }, lines)
  end)

  it("fails when a tensor or the output is changed", function()
    write_pth(dir.path .. "/PixArt-Sigma-mine.pth", weights)
    local pred = rows[7][2]
    rows[7][2] = pred * 1.001
    assert.matches("^FAIL pixart_mine .*%(out%.pred%)$", judged())
    rows[7][2] = pred
    weights[1][2] = weights[1][2] * 2
    write_pth(dir.path .. "/PixArt-Sigma-mine.pth", weights)
    assert.matches("^FAIL pixart_mine .*no %.pth next to it holds its tensors", judged())
  end)
end)
