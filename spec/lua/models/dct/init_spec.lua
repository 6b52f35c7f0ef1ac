local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local dct = require "moonreel.models.dct"

-- a smooth clip: colours that change slowly over the picture
local function clip(frames, H, W)
  local v = {}
  for f = 0, frames - 1 do
    for c = 0, 2 do
      for y = 0, H - 1 do
        for x = 0, W - 1 do
          v[#v + 1] = math.floor(128 + 100 * math.sin(0.08 * (x + 2 * f) + c) * math.cos(0.06 * y))
        end
      end
    end
  end
  return T.from({1, frames, 3, H, W}, v, "u8"), v
end

local function there_and_back(frames, H, W)
  local params = G.params("f32")
  local auto = dct.new(params)
  params:seal()
  local run = E.new(E.device("cpu", 1), params, {})
  run:init(1)
  run:set_param("frozen", auto.mean, T.new("f32", {24}):fill_normal(1, "mean"))
  local pixels, values = clip(frames, H, W)
  local g = G.graph(params)
  local z = auto:encode(g, g:input("pixels", "u8", pixels.shape))
  g:output("z", z)
  g:output("back", auto:decode(g, z, H, W))
  g:finish()
  local prog = run:compile(g)
  prog:set("pixels", pixels)
  prog:run()
  local back, sum, i = prog:get("back"):permute{0, 2, 1, 3, 4}:totable(), 0, 0
  for k, v in ipairs(values) do
    i = k
    sum = sum + ((back[k] + 1) * 127.5 - v) ^ 2
  end
  return prog:get("z").shape, 10 * math.log(255 ^ 2 / (sum / i), 10)
end

describe("models.dct", function()
  it("has 24 channels per block and restores smooth clips to more than 35 dB", function()
    local shape, psnr = there_and_back(3, 32, 24)
    assert.same({1, 24, 3, 4, 3}, shape)
    assert.is_true(psnr > 35, "PSNR " .. psnr)
  end)

  it("pads sizes that are not multiples of 8, and crops them after decoding", function()
    local shape, psnr = there_and_back(1, 20, 28)
    assert.same({1, 24, 1, 3, 4}, shape)
    assert.is_true(psnr > 25, "PSNR " .. psnr)
  end)

  it("normalises by mean, deviation and a share of the overall deviation", function()
    local auto = dct.new(G.params("f32"))
    local sums, squares = {}, {}
    for k = 1, 24 do
      sums[k], squares[k] = 10 * k, 10 * (k * k + 4)
    end
    local mean, deviation = auto:normalisation(sums, squares, 10)
    assert.near(7, mean[7], 1e-9)
    assert.near(2 + 0.02 * 2, deviation[7], 1e-9)
  end)

  -- coefficients of one 8 x 8 block whose colours `colour(c, y, x)` returns as 0..255
  local function coefficients(colour)
    local params, values = G.params("f32"), {}
    local auto = dct.new(params)
    params:seal()
    local run = E.new(E.device("cpu", 1), params, {})
    run:init(1)
    for c = 0, 2 do
      for y = 0, 7 do
        for x = 0, 7 do
          values[#values + 1] = colour(c, y, x)
        end
      end
    end
    local g = G.graph(params)
    g:output("z", auto:encode(g, g:input("pixels", "u8", {1, 1, 3, 8, 8})))
    g:finish()
    local prog = run:compile(g)
    prog:set("pixels", T.from({1, 1, 3, 8, 8}, values, "u8"))
    prog:run()
    return prog:get("z"):totable()
  end

  it("has eight times luma and colour differences of BT.601 as first coefficients", function()
    for _, rgb in ipairs{{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {200, 90, 40}} do
      local z = coefficients(function(c) return rgb[c + 1] end)
      local r, g, b = rgb[1] / 127.5 - 1, rgb[2] / 127.5 - 1, rgb[3] / 127.5 - 1
      local luma = 0.299 * r + 0.587 * g + 0.114 * b
      local want = {[1] = 8 * luma, [17] = 8 * (b - luma) / 1.772, [21] = 8 * (r - luma) / 1.402}
      for k = 1, 24 do
        assert.near(want[k] or 0, z[k], 1e-4)
      end
    end
  end)

  it("has the lowest coefficients of the orthonormal DCT-II, rows slower than columns", function()
    local function wave(n, i)
      return (n == 0 and (1 / 8) ^ 0.5 or 0.5) * math.cos((2 * i + 1) * n * math.pi / 16)
    end
    local function grey(_, y, x) return (37 * y + 101 * x + 13 * x * y) % 256 end
    local z = coefficients(grey)
    for k = 1, 24 do
      local u, v, want = (k - 1) // 4, (k - 1) % 4, 0
      -- grey has no colour differences: the other eight are zero
      for at = 0, k <= 16 and 63 or -1 do
        local y, x = at // 8, at % 8
        want = want + (grey(0, y, x) / 127.5 - 1) * wave(u, y) * wave(v, x)
      end
      assert.near(want, z[k], 1e-4)
    end
  end)
end)
