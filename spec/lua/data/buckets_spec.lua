--- moonreel.data.buckets and resolutions: names, forms, order.
-- Covers: core/bind/rule.c lua/moonreel/data/resolutions.lua lua/moonreel/recipe/resolutions.lua
local buckets = require "moonreel.data.buckets"
local fails = require "spec.support.fails"
local resolutions = require "moonreel.data.resolutions"

describe("resolutions", function()
  it("have the sizes of Open-Sora 1.2", function()
    local by_name = {}
    for _, r in ipairs(resolutions) do
      by_name[r.name] = r
    end
    assert.equal(36864, by_name["144p"].pixels)
    assert.equal(8294400, by_name["4k"].pixels)
    local found = {}
    for _, a in ipairs(by_name["240p"].aspects) do
      found[a[1]] = a[2] .. "x" .. a[3]
    end
    assert.equal("240x426", found["0.56"])
    assert.equal("426x240", found["1.78"])
    -- sums of all heights and of all widths, each times its position
    local sums = {}
    for i, r in ipairs(resolutions) do
      local height, width = 0, 0
      for place, a in ipairs(r.aspects) do
        height, width = height + place * a[2], width + place * a[3]
      end
      sums[i] = ("%s %d %d"):format(r.name, height, width)
    end
    assert.same({ "144p 32520 28336", "256 274704 173968", "240p 54282 47425", "360p 81432 71184",
      "512 549408 347936", "480p 108640 94919", "720p 162914 142342", "1024 1098816 695872",
      "1080p 244346 213470", "2k 325830 284624", "2048 2197632 1391744", "2880 3068416 1934016",
      "4k 488566 427138" }, sums)
    -- the key is height / width, except one size of 2880 that is named 4.0 and is 4.09
    for _, r in ipairs(resolutions) do
      for _, a in ipairs(r.aspects) do
        assert.is_true(math.abs(a[2] / a[3] - tonumber(a[1])) < (a[2] == 5760 and 0.1 or 0.02))
      end
    end
  end)
end)

describe("buckets.resolve", function()
  it("orders resolutions from high to low and keeps the table's aspects", function()
    local list = buckets.resolve { ["144p"] = { [1] = { 1.0, 8 } },
      ["720p"] = { [51] = { { 0.5, 0.2 }, 2 } }, ["240p"] = { ["2x"] = { 1.0, 1 } } }
    assert.same({ "720p", "240p", "144p" }, { list[1].name, list[2].name, list[3].name })
    assert.same({ { 51, 0.5, 0.2, 2, pair = true } }, list[1].lengths)
    assert.same({ { 102, 1.0, 1.0, 1 } }, list[2].lengths)
    assert.same({ 0.38, 117, 312 }, list[3].aspects[1])
  end)

  it("accepts a probability of 0 without a batch size", function()
    assert.same({ 102, 0.0, 1.0, 0 },
      buckets.resolve { ["480p"] = { ["4s"] = { 0.0 } } }[1].lengths[1])
  end)

  it("prefers a recipe's own resolution", function()
    local list = buckets.resolve({ ["144p"] = { [1] = { 1.0, 8 } } },
      { ["144p"] = { pixels = 100, aspects = { ["2.00"] = { 20, 10 }, ["0.50"] = { 10, 20 } } } })
    assert.equal(100.0, list[1].pixels)
    assert.same({ { 0.5, 10, 20 }, { 2.0, 20, 10 } }, list[1].aspects)
  end)
end)

describe("names of resolutions that both references have", function()
  local lines = { "144p", "240p", "360p", "480p", "720p", "1080p" }
  local settings = require "moonreel.settings"

  -- sizes of the resolved names, by ratio
  local function sizes(list)
    local found = {}
    for _, r in ipairs(list) do
      found[r.name] = { r.pixels, #r.aspects }
      for _, a in ipairs(r.aspects) do
        found[r.name][a[2] .. "x" .. a[3]] = true
      end
    end
    return found
  end

  local function config()
    local all = {}
    for _, name in ipairs(lines) do
      all[name] = { [1] = { 1.0, 2 } }
    end
    return all
  end

  it("mean the sizes of 2.0 under its compat, and those of 1.2 otherwise", function()
    local aspects = require "moonreel.data.aspects"
    local new = sizes(buckets.resolve(config(), require "moonreel.recipe.resolutions", nil,
      "opensora-2.0"))
    for _, name in ipairs(lines) do
      local want = aspects.resolution(name)
      assert.same({ want.pixels, #want.aspects }, { new[name][1], new[name][2] })
      for _, row in ipairs(want.aspects) do
        assert.is_true(new[name][row.height .. "x" .. row.width], name)
        assert.equal(0, row.height % 16 + row.width % 16)
      end
    end
    -- reference opensora-2.0, golden aspect_fps.json, D16/720p/train
    assert.is_true(new["720p"]["752x1232"])
    for _, whose in ipairs { "opensora-1.2", false } do
      local old = sizes(buckets.resolve(config(), nil, nil, whose or nil))
      assert.same({ 17, true }, { old["720p"][2], old["720p"]["720x1280"] })
      assert.equal(102240.0, old["240p"][1])
    end
  end)

  it("are rounded to multiples of ae_spatial_compression", function()
    local s = settings.bake("opensora-2.0/train/high_compression")
    local rule = buckets.rule(buckets.of(s))
    local found = sizes(require("moonreel.plan").resolutions(s))["768px"]
    -- reference opensora-2.0, 10.1: training at 768px on a grid of 32
    for _, size in ipairs { { 480, 1216 }, { 544, 1088 }, { 576, 1024 }, { 640, 928 },
        { 672, 864 }, { 768, 768 }, { 928, 640 } } do
      assert.is_true(found[size[1] .. "x" .. size[2]])
      local bucket = rule:assign { frames = 1, height = size[1], width = size[2], key = 1,
        row = 1, fps = 24 }
      assert.same(size, { bucket.height, bucket.width })
    end
    assert.equal(11, found[2])
    fails("MR_E_RECIPE", "no resolution '30px' in multiples of ae_spatial_compression = 32",
      buckets.resolve, { ["30px"] = { [1] = { 1.0, 1 } } }, nil, nil, nil, 32)
  end)

  it("mean the recipe's own resolutions when it has some", function()
    local own = { pixels = 100, aspects = { { 1.0, 10, 10 } } }
    local list = buckets.resolve({ ["144p"] = { [1] = { 1.0, 8 } } }, { ["144p"] = own }, nil,
      "opensora-2.0")
    assert.same({ { 1.0, 10, 10 } }, list[1].aspects)
    -- one changed size makes a shipped resolution the recipe's own
    local changed = {}
    for i, a in ipairs(require("moonreel.recipe.resolutions")["144p"].aspects) do
      changed[i] = { a[1], a[2], i == 17 and 133 or a[3] }
    end
    list = buckets.resolve({ ["144p"] = { [1] = { 1.0, 8 } } },
      { ["144p"] = { pixels = 36864, aspects = changed } }, nil, "opensora-2.0")
    assert.same({ 2.08, 277, 133 }, list[1].aspects[17])
  end)

  it("follow compat in rules, orders and plans, for each order", function()
    for _, order in ipairs { "reference", "own" } do
      local s = settings.bake("tiny/demo", { "compat=opensora-2.0", "order=" .. order,
        "bucket_config={[\"720p\"]={[1]={1.0,1}}}" })
      local bucket = buckets.rule(buckets.of(s)):assign { frames = 1, height = 800, width = 1280,
        key = 7, seed = 1, epoch = 0, row = 1 }
      assert.same({ 752, 1232 }, { bucket.height, bucket.width }, order)
      assert.equal(15, #require("moonreel.plan").resolutions(s)[1].aspects)
    end
    local rule = buckets.rule { bucket_config = { ["720p"] = { [1] = { 1.0, 1 } } },
      reference = "opensora-2.0", fps_max = 24 }
    local bucket = rule:assign { frames = 1, height = 800, width = 1280, key = 7, row = 1 }
    assert.same({ 752, 1232 }, { bucket.height, bucket.width })
  end)
end)

describe("buckets.rule", function()
  local config = { ["144p"] = { [1] = { 1.0, 8 }, [17] = { 1.0, 2 } },
    ["720p"] = { [17] = { 0.5, 1 } } }

  it("returns the bucket of a sample, or why it has none", function()
    local rule = buckets.rule { bucket_config = config }
    assert.same({ resolution = "144p", frames = 17, height = 144, width = 256, batch = 2 },
      rule:assign { frames = 17, height = 144, width = 256 })
    assert.equal(1, rule:assign { frames = 1, height = 720, width = 1280 }.frames)
    local none, why = rule:assign { frames = 16, height = 720, width = 1280 }
    assert.is_nil(none)
    assert.equal("shorter than every length (frame_interval counted)", why)
    -- half of the large ones are kept in the first bucket that fits
    local kept = 0
    for key = 1, 400 do
      local bucket = rule:assign { frames = 17, height = 720, width = 1280, key = key, seed = 3 }
      kept = kept + (bucket.resolution == "720p" and 1 or 0)
    end
    assert.is_true(kept > 150 and kept < 250)
  end)

  it("returns the frames that a sample contributes", function()
    local frames, starts = buckets.rule { bucket_config = config, frame_interval = 2 }
      :crop(4, 20, 5)
    assert.same({ 5, 7, 9, 11 }, frames)
    assert.equal(14, starts)
    frames, starts = buckets.rule { bucket_config = config, frame_interval = 2, compat = true }
      :crop(4, 20, 5)
    assert.same({ 5, 7, 9, 12 }, frames)
    assert.equal(12, starts)
  end)

  it("refuses values that are out of range or contradict each other", function()
    local rule = buckets.rule { bucket_config = config }
    assert.has_error(function() rule:assign { frames = 0, height = 1, width = 1 } end)
    assert.has_error(function() rule:assign { frames = 1, height = 70000, width = 1 } end)
    assert.has_error(function() rule:crop(4, 20, 17) end)
    assert.has_error(function() buckets.rule { bucket_confi = config } end)
  end)
end)
