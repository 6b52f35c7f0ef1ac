--- Sizes by aspect ratio, and bucket tables that name resolutions of Open-Sora 2.0.
local aspects = require "moonreel.data.aspects"
local buckets = require "moonreel.data.buckets"

describe("data.aspects", function()
  it("reads names by pixels and by lines, with all aspects, one of them, or the largest", function()
    local all = aspects.resolution("256px")
    assert.same({ 65536, 11 }, { all.pixels, #all.aspects })
    assert.same({ name = "16:9", height = 192, width = 336 }, all.aspects[3])
    assert.equal(360 * 640, aspects.resolution("360p").pixels)
    assert.same({ { name = "1:1", height = 512, width = 512 } },
      aspects.resolution("512px_ar1:1").aspects)
    assert.same({ { name = "2.39:1", height = 672, width = 1568 } },
      aspects.resolution("1024px_max").aspects)
    for _, name in ipairs { "256", "px", "0px", "256 px", "4k", "99999px" } do
      assert.is_nil(aspects.resolution(name))
    end
    assert.has_error(function() aspects.resolution("256px_ar7:1") end)
    assert.has_error(function() aspects.resolution("256px_min") end)
  end)

  it("lists each size of a training table once, on its grid", function()
    for _, grid in ipairs { 16, 32 } do
      local seen = {}
      for _, row in ipairs(aspects.sizes(768 * 768, grid, true)) do
        local size = row.height .. "x" .. row.width
        assert.is_nil(seen[size])
        seen[size] = true
        assert.equal(0, row.height % grid + row.width % grid)
        assert.is_true(math.abs(row.height * row.width / 768 ^ 2 - 1) < 0.04)
      end
    end
  end)

  it("finds the nearest aspect by name, the first of equally near ones", function()
    local rows = aspects.resolution("256px").aspects
    assert.equal("9:16", aspects.nearest(rows, 1920, 1080).name)
    assert.equal("1:1", aspects.nearest(rows, 500, 500).name)
  end)

  it("resolves the sizes of bucket tables", function()
    local rule = buckets.rule { bucket_config = { ["256px"] = { [5] = { 1.0, 2 } },
      ["768px"] = { [1] = { 1.0, 3 } } } }
    local bucket = rule:assign { frames = 9, height = 1080, width = 1920, key = 1 }
    assert.same({ "256px", 192, 336 }, { bucket.resolution, bucket.height, bucket.width })
    bucket = rule:assign { frames = 1, height = 1080, width = 1920, key = 1 }
    assert.same({ "768px", 576, 1024 }, { bucket.resolution, bucket.height, bucket.width })
  end)
end)
