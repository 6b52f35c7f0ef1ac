--- Files of MMDiT in other forms: each form gives the same prediction, and conversion there and
-- back keeps the bits.
-- Covers: lua/moonreel/models/mmdit/weights.lua lua/moonreel/models/mmdit/names.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ckpt = require "moonreel.ckpt"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local mmdit = require "moonreel.models.mmdit"
local model_of = require "moonreel.ckpt.model"
local nn = require "moonreel.nn"
local small = require "spec.support.small_mmdit"
local start = require "moonreel.ckpt.start"
local weights = require "moonreel.models.mmdit.weights"

local CONFIG = nn.merged(small, { depth_single_blocks = 1, fused_qkv = false,
  use_liger_rope = true })

describe("files of MMDiT", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  -- a model with the weights of a file, or fresh ones
  local function model(change, path)
    local c, params = nn.merged(CONFIG, change), G.params "f32"
    local net = mmdit.new(params, c)
    params:seal()
    local run, report = E.new(E.device("cpu", 1), params, {}), nil
    run:init(1)
    if path then
      local file <close> = ckpt.open(path)
      report = start.read(file, params:list(), { maps = { weights.map(c) } }, function(p, t)
        run:set_param("w", p.name, t)
      end)
    else
      for i, p in ipairs(params:list()) do
        run:set_param("w", p.name, T.new("f32", p.shape):fill_normal(i, "weights_spec") * 0.3)
      end
    end
    return { net = net, params = params, run = run }, report
  end

  local function write(m, name)
    return dir:write_weights(name, m.params, function(p) return m.run:param("w", p.name) end)
  end

  local function predicted(m)
    local g, io = G.graph(m.params), {}
    local shapes = { x = { 1, 3, 2, 4, 4 }, t = { 1 }, y = { 1, 3, 10 }, vector = { 1, 1, 8 } }
    for name, shape in pairs(shapes) do
      io[name] = g:input(name, "f32", shape)
    end
    g:output("out", m.net:forward(g, io))
    g:finish()
    local prog = m.run:compile(g)
    for i, name in ipairs { "x", "t", "y", "vector" } do
      prog:set(name, T.new("f32", shapes[name]):fill_normal(i, "in"))
    end
    prog:run()
    return prog:get("out"):totable()
  end

  local function near(a, b)
    for i, value in ipairs(a) do
      assert.near(value, b[i], 1e-4)
    end
  end

  local forms = {
    ["a fused one that turns neighbours"] = { fused_qkv = true, use_liger_rope = false },
    ["a fused one that turns halves"] = { fused_qkv = true },
    ["one with three products that turns neighbours"] = { use_liger_rope = false },
  }
  for name, form in pairs(forms) do
    it("are converted to " .. name .. " and back with the same bits", function()
      local first = model()
      local path = write(first, "first.safetensors")
      local other, report = model(form, path)
      assert.same({ 0, 0, 0 }, { #report.missing, #report.unexpected, #report.differ })
      assert.is_true(#report.made > 0)
      near(predicted(first), predicted(other))
      local way = form.use_liger_rope == false and "pairs" or "halves"
      local back = model({ rope_of_weights = way }, write(other, "other.safetensors"))
      for _, p in ipairs(first.params:list()) do
        assert.same(first.run:param("w", p.name):totable(), back.run:param("w", p.name):totable(),
          p.name)
      end
    end)
  end

  it("of Flux, with fused layers, rotate pairs unless a recipe says otherwise", function()
    local flux = model { fused_qkv = true, use_liger_rope = false }
    local path = write(flux, "flux.safetensors")
    local _, report = model({ cond_embed = true }, path)
    near(predicted(flux), predicted((model({}, path))))
    assert.same({ "cond_in.weight", "cond_in.bias" }, { report.fresh[1].name,
      report.fresh[2].name })
    local text = tostring(start.table(report))
    assert.matches("converted +double_blocks%.0%.img_attn%.q_proj%.weight", text)
    assert.matches("rotation of pairs as of halves, a part of a fused product", text)
    assert.matches("left fresh +cond_in%.%*", text)
    -- when the recipe says that they rotate halves, they are not converted
    local reported = model({ rope_of_weights = "halves" }, path)
    assert.same(flux.run:param("w", "single_blocks.0.linear1.weight"):slice(0, 0, 32):clone()
      :totable(), reported.run:param("w", "single_blocks.0.q_proj.weight"):totable())
  end)

  it("of only single blocks, with fused layers, rotate pairs too", function()
    local flux = model { depth = 0, fused_qkv = true, use_liger_rope = false }
    local path = write(flux, "single.safetensors")
    near(predicted(flux), predicted((model({ depth = 0 }, path))))
  end)

  -- weights that diffusers wrote, and the same under Flux's names
  describe("in names of diffusers", function()
    local FOLDER = "spec/golden/flux_pipe"
    local c = nn.merged(small, { in_channels = 64, vec_in_dim = 16, context_in_dim = 16,
      mlp_ratio = 4, depth_single_blocks = 1, guidance_embed = true })

    -- parameters of a form of the model from a file, by their names
    local function read(path, change)
      local fields, params = nn.merged(c, change), G.params "f32"
      mmdit.new(params, fields)
      params:seal()
      local maps, got = { weights.map(fields) }, {}
      local file <close> = ckpt.open(path)
      start.check_sizes(file, maps)
      local report = start.read(file, params:list(), { maps = maps }, function(p, t)
        got[p.name] = t:totable()
      end)
      assert.same({ {}, {}, {} }, { report.missing, report.unexpected, report.differ })
      assert.equal(#params:list() - #report.fresh, #report.loaded)
      return got, report
    end

    for name, form in pairs { ["fused, neighbours"] = {}, ["fused, halves"] =
        { use_liger_rope = true }, ["separate, neighbours"] = { fused_qkv = false },
        ["separate, halves"] = { fused_qkv = false, use_liger_rope = true },
        ["with a condition"] = { cond_embed = true } } do
      it("set each parameter to the bits of the flat file: " .. name, function()
        local got, report = read(FOLDER .. "/diffusion_pytorch_model.safetensors", form)
        local want, flat = read(FOLDER .. "/flux.safetensors", form)
        assert.same(want, got)
        assert.same({ "diffusers", "MMDiT" }, { report.layout, flat.layout })
        assert.same(form.cond_embed and 2 or 0, #report.fresh)
      end)
    end

    it("report conversions once", function()
      local _, report = read(FOLDER .. "/diffusion_pytorch_model.safetensors",
        { fused_qkv = false, use_liger_rope = true })
      local text = tostring(start.table(report))
      assert.matches("converted +final_layer%.adaLN_modulation%.1%.weight +1 +scale and shift in "
        .. "the other order", text)
      assert.matches("converted +single_blocks%.0%.v_mlp%.weight +1 +several products as one", text)
      assert.matches("converted +double_blocks%.0%.txt_attn%.q_proj%.weight +1 +rotation of pairs "
        .. "as of halves\n", text)
      assert.matches("0 missing, 0 unexpected, names of diffusers$", text)
    end)

    it("are recognised by the names of their tensors", function()
      local file <close> = ckpt.open(FOLDER .. "/diffusion_pytorch_model.safetensors")
      assert.equal("MMDiT in names of diffusers: depth 1, depth_single_blocks 1, hidden_size 32, "
        .. "in_channels 64", model_of.text(model_of.of(file)))
    end)

    it("are refused at another size, with the names in the file", function()
      local file <close> = ckpt.open(FOLDER .. "/diffusion_pytorch_model.safetensors")
      for text, change in pairs {
        ["model%.hidden_size is 64, but 'x_embedder%.weight' is %[32,64%]: its axis 0 has 32; "
          .. "try: model%.hidden_size = 32$"] = { hidden_size = 64 },
        ["model%.depth is 19, but counting blocks like that of 'transformer_blocks%.0%..+' "
          .. "gives 1; try: "
          .. "model%.depth = 1$"] = { depth = 19 },
      } do
        fails("MR_E_CKPT", text, start.check_sizes, file, { weights.map(nn.merged(c, change)) })
      end
    end)
  end)

  it("of a run are converted from its weights, not from its averages or masters", function()
    local first = model()
    local rows = {}
    for _, p in ipairs(first.params:list()) do
      local w = first.run:param("w", p.name)
      for _, row in ipairs { { "", w }, { "ema.", w * 2 }, { "master.", w * 3 } } do
        local ptr, bytes = row[2]:ptr()
        rows[#rows + 1] = { name = row[1] .. p.name, dtype = "f32", shape = p.shape, ptr = ptr,
          bytes = bytes, of = row[2] }
      end
    end
    local path = dir.path .. "/run.safetensors"
    ckpt.write(path, rows)
    local got = model({ fused_qkv = true, rope_of_weights = "halves" }, path)
    assert.same(first.run:param("w", "single_blocks.0.q_proj.bias"):totable(),
      got.run:param("w", "single_blocks.0.linear1.bias"):slice(0, 0, 32):clone():totable())
  end)

  it("of another size are refused with both values and the line of the recipe", function()
    local path = write(model(), "deep.safetensors")
    local file <close> = ckpt.open(path)
    local function check(change)
      start.check_sizes(file, { weights.map(nn.merged(CONFIG, change)) })
    end
    check {}
    check { fused_qkv = true, use_liger_rope = false }
    for text, change in pairs {
      ["deep%.safetensors: model%.depth is 2, but counting blocks like that of '"
        .. "double_blocks%.0%..+' gives 1; try: model%.depth = 1$"] = { depth = 2 },
      ["model%.depth_single_blocks is 38, but .+; try: model%.depth_single_blocks = 1$"] =
        { depth_single_blocks = 38 },
      ["model%.hidden_size is 64, but 'img_in%.weight' is %[32,12%]: its axis 0 has 32; try: "
        .. "model%.hidden_size = 32$"] = { hidden_size = 64 },
      ["model%.in_channels is 16, .+ has 12; try: model%.in_channels = 12$"] = { in_channels = 16 },
      ["model%.context_in_dim is 9, .+ try: model%.context_in_dim = 10$"] = { context_in_dim = 9 },
      ["model%.vec_in_dim is 9, .+ try: model%.vec_in_dim = 8$"] = { vec_in_dim = 9 },
    } do
      fails("MR_E_CKPT", text, check, change)
    end
  end)
end)
