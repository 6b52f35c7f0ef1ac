--- The order of a loader without decoding, and why a bucket accepts a sample.
-- Covers: core/bind/order.c core/data/pass.c
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local demo_data = require "spec.support.demo_data"
local folder = require "spec.support.folder"
local order = require "moonreel.data.order"

local index, one, place
setup(function()
  place = folder.new()
  index = data.open(demo_data.path())
  one = { { name = "", index = index } }
end)
teardown(function() place:remove() end)

local function bake(text)
  return place:bake(([[return recipe { seed = 5, %s,
    resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } },
      big = { pixels = 4096, aspects = { { 1.0, 64, 64 } } } } }]]):format(text))
end
local usual = 'bucket_config = { ["32px"] = { [1] = { 1.0, 7 }, [4] = { { 1.0, 0.5 }, 5 }, '
  .. '[2] = { 1.0, 8 } } }'

describe("data.order", function()
  it("draws what the loader of a run draws, epoch after epoch", function()
    local settings = bake(usual)
    local loader <close> = data.loader { index = index, seed = 5, threads = 1,
      bucket_config = settings:plain("bucket_config"),
      resolutions = settings:plain("resolutions"), epochs = 2 }
    local draws <close> = order.open(settings, one)
    local batches = draws:batches()
    assert.equal(loader:plan().batches, batches)
    -- the first batches of the second epoch differ from those of the first
    local wanted = loader:order(#index + 60)
    local at, epochs = 0, {}
    while at < #wanted do
      local draw = draws:next()
      epochs[draw.epoch] = (epochs[draw.epoch] or 0) + 1
      assert.equal(epochs[draw.epoch] - 1, draw.number)
      assert.equal(draw.epoch == 0 and draw.number == batches - 1, draw.last)
      for i, row in ipairs(draw.rows) do
        at = at + 1
        if wanted[at] then
          assert.equal(wanted[at] + 1, row)
          assert.equal(index:row(row).key_lo, draw.keys[i])
        end
      end
    end
    assert.equal(batches, epochs[0])
    assert.is_true(epochs[1] > 3)
  end)

  it("skips batches", function()
    local settings = bake(usual)
    local all <close> = order.open(settings, one)
    local some <close> = order.open(settings, one)
    for _ = 1, 70 do
      all:next()
    end
    some:skip(70)
    assert.same(all:next(), some:next())
  end)

  -- with probabilities, epochs differ in length; lists of a reference are made for each epoch
  for name, text in pairs { ["whole epochs"] = usual, ["epochs that carry"] = usual
      .. ', tail = "carry"', ["epochs that are alike"] = 'bucket_config = { ["32px"] = { [1] = '
      .. '{ 1.0, 7 }, [4] = { 1.0, 11 } } }', ["alike ones that carry"] = 'tail = "carry", '
      .. 'bucket_config = { ["32px"] = { [1] = { 1.0, 7 }, [4] = { 1.0, 300 } } }',
      ["slots"] = usual .. ", virtual_ranks = 3", ["lists"] = 'compat = "opensora-1.2", '
      .. 'bucket_config = { ["32px"] = { [4] = { 1.0, 5 } } }' } do
    it("skips " .. name .. " as if they were drawn", function()
      local settings = bake(text .. ", epochs = 9")
      local all <close> = order.open(settings, one)
      local some <close> = order.open(settings, one)
      local drawn = {}
      while not all:over() do
        drawn[#drawn + 1] = all:next()
      end
      assert.same({ 8, true }, { drawn[#drawn].epoch, drawn[#drawn].last })
      assert.is_true(some:most() >= #drawn)
      local at = 0
      for _, n in ipairs { 1, drawn[#drawn].number // 2, drawn[#drawn].number, #drawn // 2 } do
        assert.equal(0, some:skip(n))
        at = at + n + 1
        assert.same(drawn[at], some:next())
      end
      assert.is_false(some:over())
      assert.equal(1000, some:skip(#drawn - at + 1000))
      assert.is_true(some:over())
    end)
  end

  it("skips epochs that leave samples out", function()
    local settings = bake(usual)
    local lines = {}
    for i = 1, 60 do
      for epoch = i // 10, i // 10 + 1 do
        lines[#lines + 1] = ('{"key":"%s","class":"corrupt","epoch":%d,"attempt":1,'
          .. '"fp_order":"%s"}\n'):format(index:row(i).key, epoch, index.meta.fp_order)
      end
    end
    local path = place:write("quarantine.jsonl", table.concat(lines))
    local all <close> = order.open(settings, one, path)
    local some <close> = order.open(settings, one, path)
    for _ = 1, 500 do
      all:next()
    end
    assert.equal(0, some:skip(500))
    assert.same(all:next(), some:next())
  end)

  it("leaves out samples that failed twice, from the next epoch on", function()
    local settings = bake('bucket_config = { ["32px"] = { [2] = { 1.0, 50 } } }')
    local row = index:row(3)
    local line = '{"key":"%s","class":"corrupt","epoch":%d,"attempt":1,"fp_order":"%s"}\n'
    local path = place:write("quarantine.jsonl", line:format(row.key, 0, index.meta.fp_order)
      .. line:format(row.key, 1, index.meta.fp_order))
    local draws <close> = order.open(settings, one, path)
    local comes = {}
    for _ = 1, 3 * draws:batches() do
      local draw = draws:next()
      for _, r in ipairs(draw.rows) do
        comes[draw.epoch] = comes[draw.epoch] or r == 3
      end
    end
    assert.same({ [0] = true, true, false }, comes)
  end)

  it("reports for each length in turn why it refused a sample", function()
    local settings = bake('bucket_config = { big = { [1] = { 1.0, 1 } }, ["32px"] = '
      .. '{ [9] = { 1.0, 1 }, [4] = { { 0.5, 0.5 }, 2 }, [2] = { 0.5, 3 }, [1] = { 1.0, 1 } } }')
    local entered, says = {}, {}
    for i = 1, 60 do
      local row = index:row(i)
      local asked, bucket = order.asked(settings, row, 1)
      assert.same({ "big", 1 }, { asked[1].resolution, asked[1].frames })
      assert.equal("below 0.8 of the pixels of every resolution", asked[1].says)
      assert.matches("^shorter than every length", asked[2].says)
      for n = 3, #asked do
        says[asked[n].says] = true
      end
      local last = asked[#asked]
      if bucket then
        assert.same({ "takes it", bucket.frames }, { last.says, last.frames })
        entered[bucket.frames] = (entered[bucket.frames] or 0) + 1
      else
        assert.equal(5, #asked)
        assert.not_equal("takes it", last.says)
      end
    end
    assert.is_true(entered[4] > 5 and entered[2] > 5)
    for _, text in ipairs { "not tried at random, with probability 0.5",
      "not kept at random, with probability 0.5", "not asked: a longer one did not keep it" } do
      assert.is_true(says[text] or false, text)
    end
  end)

  it("refuses settings without buckets", function()
    local ok, problem = pcall(order.open, bake("lr = 1"), one)
    assert.is_false(ok)
    assert.matches("bucket_config is not set", tostring(problem))
    assert.is_true(base.exists(place.path))
  end)
end)
