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
  it("gives 24 channels per block and smooth clips back at more than 35 dB", function()
    local shape, psnr = there_and_back(3, 32, 24)
    assert.same({1, 24, 3, 4, 3}, shape)
    assert.is_true(psnr > 35, "PSNR " .. psnr)
  end)

  it("pads sizes that are no multiple of 8 and crops them again", function()
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
end)
