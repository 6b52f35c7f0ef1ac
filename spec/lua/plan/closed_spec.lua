--- Closed formulas compared with the tables that were computed for the published models.
local closed = require "moonreel.plan.closed"
local compiled = require "moonreel.plan.compiled"
local machine = require "moonreel.plan.machine"
local mesh = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local settings = require "moonreel.settings"

local function near(want, got, share, what)
  assert.is_true(math.abs(got - want) <= share * want,
    ("%s: %g, expected %g"):format(what or "", got, want))
end

describe("the MMDiT of Open-Sora 2.0", function()
  local h200 = machine.open "H200"
  local ckpt = { double = 8, single = 38 }

  it("has the tokens, operations, bytes and seconds of its published buckets", function()
    -- side, frames, batch; tokens, model and hardware PFLOP, GB, s at 38.19 % of 989 TFLOP/s
    for _, r in ipairs { { 256, 1, 45, 34560, 1.395, 1.78, 108, 3.7 },
        { 256, 33, 12, 33792, 1.509, 1.95, 107, 4.0 }, { 256, 65, 6, 29184, 1.429, 1.86, 97, 3.8 },
        { 256, 97, 4, 27648, 1.472, 1.94, 94, 3.9 }, { 256, 129, 3, 26880, 1.547, 2.05, 92, 4.1 },
        { 768, 1, 13, 36608, 1.635, 2.11, 113, 4.3 }, { 1024, 1, 7, 32256, 1.562, 2.03, 103, 4.1 },
        { 256, 1, 50, 38400, 1.550, 1.98, 117, 4.1 } } do
      local s = closed.mmdit_shape(r[1], r[2], r[3], { recomputed = ckpt })
      local model, products, attention = closed.mmdit_operations(s)
      local what = ("%d px, %d frames"):format(r[1], r[2])
      assert.equal(r[4], s.tokens * s.batch, what)
      near(r[5] * 1e15, model, 1e-3, what)
      near(r[6] * 1e15, products + attention, 5e-3, what)
      near(r[7] * 1e9, closed.mmdit_bytes(s, 224), 0.01, what)
      near(r[8], model / (0.3819 * 989e12), 0.02, what)
    end
  end)

  it("takes the seconds of its parts at the rates of an H200", function()
    local s = closed.mmdit_shape(256, 129, 3, { recomputed = ckpt })
    local t = closed.mmdit_seconds(s, h200)
    for part, want in pairs { products = 2.20, attention = 1.32, encode = 0.95, text = 0.03,
        stream = 0.19, total = 4.84 } do
      assert.is_true(math.abs(t[part] - want) <= 0.006, part .. ": " .. t[part])
    end
    near(3.86, closed.mmdit_seconds(s, h200, { cached = true }).total, 2e-3)
    local image = closed.mmdit_shape(256, 1, 45, { recomputed = ckpt })
    near(3.95, closed.mmdit_seconds(image, h200).total, 2e-3)
  end)

  it("divides a sample over ranks: 768 px over four", function()
    local s = closed.mmdit_shape(768, 129, 2,
      { sequence = 4, recomputed = { double = 19, single = 38 } })
    local t = closed.mmdit_seconds(s, h200)
    near(3.29, t.products, 2e-3)
    near(16.8, t.attention, 2e-3)
    near(10.1, t.encode, 6e-3)
    near(30.7, t.total, 2e-3)
    near(23.1, closed.mmdit_seconds(s, h200, { shared = true }).total, 2e-3)
  end)
end)

describe("the state of the MMDiT", function()
  it("shares 18 bytes a parameter: gradients, masters, moments and averages", function()
    local s = closed.mmdit_shape(256, 1, 1)
    local shared = closed.mmdit_bytes(s, 1) - closed.mmdit_bytes(s, 2)
    near(18 * closed.mmdit.parameters / 2, shared, 1e-9, "shared state")
  end)
end)

describe("a graph of the MMDiT's shapes", function()
  local mmdit = require "moonreel.bench.mmdit"

  it("has the released parameters and, within 10 %, the operations of the formulas", function()
    for _, r in ipairs { { 256, 33, 2, false }, { 768, 33, 1, true } } do
      local s = closed.mmdit_shape(r[1], r[2], r[3])
      local got = mmdit.plan(r[3], s.tokens - mmdit.text, r[4])
      assert.equal(11891390528, got.parameters)
      near(closed.mmdit.parameters, got.parameters, 1e-3)
      near(closed.mmdit_operations(s), got.useful, 0.1)
    end
  end)

  it("keeps the formula's bytes of a recomputed block, and attention's results", function()
    local function kept(tokens) return mmdit.plan(1, tokens, true).arena end
    local free = mmdit.plan(1, 8192, false).arena
    assert.is_true(kept(8192) < free / 3)
    -- block inputs and attention's results, 2 h each in 57 blocks, grow with the tokens
    local per_token = (kept(16384) - kept(8192)) / 8192
    assert.is_true(per_token > 57 * 4 * 3072 and per_token < 1.25 * 57 * 4 * 3072, per_token)
  end)
end)

describe("recipes of Open-Sora 2.0", function()
  it("have the parameters and, within 10 %, the operations of the formulas", function()
    local of = mesh.parse "28x8xH200"
    local cache <close> = compiled.new(of.machine)
    -- a model that takes a condition, and one without
    for name, parameters in pairs { i2v = 11891390528, stage1 = 11891178560 } do
      local s = settings.bake("opensora-2.0/train/" .. name,
        { "bucket_config=recipe.replace{['256px'] = {[129] = {1.0, 3}}}" })
      local p = plan.of(s, { mesh = of, compiled = cache })
      assert.equal(parameters, p.parameters)
      near(closed.mmdit_operations(closed.mmdit_shape(256, 129, 3)), p.buckets[1].useful, 0.1, name)
    end
  end)
end)

describe("STDiT3 of Open-Sora 1.2", function()
  it("has the tokens, operations and kept bytes of the tutorial's buckets", function()
    -- height, width, frames, batch; tokens, TFLOP, GB kept, share of the peak at 12 s
    for _, r in ipairs { { 144, 256, 51, 51, 110160, 734, 14.2, 6.2 },
        { 144, 256, 1, 475, 68400, 574, 8.8, 4.8 }, { 240, 426, 51, 20, 121500, 812, 15.7, 6.8 },
        { 360, 640, 51, 8, 110400, 757, 14.2, 6.4 },
        { 720, 1280, 1, 36, 129600, 1029, 16.7, 8.7 } } do
      local s = closed.stdit3_shape(r[1], r[2], r[3], r[4])
      assert.equal(r[5], s.tokens * s.batch)
      near(r[6] * 1e12, closed.stdit3_operations(s), 1e-3)
      near(r[7] * 1e9, closed.stdit3_kept(s), 5e-3)
      near(r[8], 100 * closed.stdit3_operations(s) / 12 / 989e12, 0.01)
    end
  end)

  it("agree with the graphs that train, within 10 %", function()
    local of = mesh.parse "H100"
    local cache <close> = compiled.new(of.machine)
    local p = plan.of(settings.bake("opensora-1.2/lambda/stage1", { "bucket_config=recipe.replace{"
      .. "['144p'] = {[51] = {1.0, 51}, [1] = {1.0, 475}}, ['720p'] = {[1] = {1.0, 36}}}" }),
      { mesh = of, compiled = cache })
    assert.equal(3, #p.buckets)
    for _, b in ipairs(p.buckets) do
      local s = closed.stdit3_shape(b.height, b.width, b.frames, b.batch)
      assert.equal(s.tokens * b.batch, b.tokens)
      near(closed.stdit3_operations(s), b.useful, 0.1, plan.bucket_name(b))
    end
  end)
end)
