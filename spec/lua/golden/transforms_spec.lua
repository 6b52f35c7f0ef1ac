--- Reference files about pixels at another size, and how differences are found.
-- Covers: spec/golden/runner/transforms.lua core/bind/media.c
local T = require "moonreel.core.tensor"
local ckpt = require "moonreel.ckpt"
local fails = require "spec.support.fails"
local file = require "spec.golden.runner.file"
local folder = require "spec.support.folder"
local golden = require "spec.golden.runner"
local media = require "moonreel.core.media"

-- the result for a reference file in which one tensor is changed
local function judged(path, name, change)
  local place, rows = folder.new(), {}
  local f <close> = file.open(path)
  for i, one in ipairs(f.names) do
    local t = one == name and change(f:tensor(one)) or f:tensor(one)
    rows[i] = {name = one, dtype = t.dtype, shape = t.shape, ptr = t:bytes(), bytes = #t:bytes()}
  end
  ckpt.write(place.path .. "/transforms.safetensors", rows, f.source.metadata)
  local line
  golden.run(place.path, function(text) line = line or text end)
  place:remove()
  return line
end

-- one value increased by `step`
local function other(step)
  return function(t)
    local values = t:totable()
    values[7] = values[7] + step
    return T.from(t.shape, values, t.dtype)
  end
end

describe("golden files about pixels at another size", function()
  it("fail when one pixel is changed", function()
    local of12, of20 = "spec/golden/transforms.safetensors",
      "spec/golden/data20/transforms.safetensors"
    assert.matches("^PASS", judged(of12))
    assert.matches("^PASS", judged(of20))
    assert.matches("^FAIL .*video%.1", judged(of12, "video.1.out", other(1e-4)))
    assert.matches("^FAIL .*image%.0", judged(of12, "image.0.out_u8", other(1)))
    assert.matches("^FAIL .*image%.1", judged(of12, "image.1.out", other(0.01)))
    assert.matches("^FAIL .*case0", judged(of20, "case0.out", other(1e-4)))
    assert.matches("^FAIL .*case1", judged(of20, "case1.out", other(0.01)))
  end)

  it("refuse tensors that are no frames", function()
    local pixels = T.new("u8", {2, 3, 4, 5})
    assert.same({2, 3, 8, 8}, media.cover(pixels, {height = 8, width = 8}).shape)
    assert.equal("u8", media.cover(pixels, {height = 1, width = 8, picture = true}).dtype)
    fails("MR_E_USAGE", "cover: width is missing", media.cover, pixels, {height = 8})
    local how = {height = 8, width = 8}
    fails("MR_E_SHAPE", "cover: pixels are %[2, 4, 5, 3%] u8; expected dense", media.cover,
      T.new("u8", {2, 4, 5, 3}), how)
    fails("MR_E_SHAPE", "expected dense", media.cover, pixels:slice(3, 0, 4), how)
  end)
end)
