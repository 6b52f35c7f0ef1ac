--- Sizes of communication buckets: the formula of reference parallelism 2, and the sizes that are
-- tried.
local bucket_size = require "moonreel.optim.bucket_size"

describe("optim.bucket_size", function()
  -- sizes of recipes are multiples of 2^20, and these would all be smaller
  local least = bucket_size.least
  setup(function() bucket_size.least = 1 << 16 end)
  teardown(function() bucket_size.least = least end)

  -- 4 GB of gradients, 50 us for a collective
  local function formula(rate, backward_s)
    return bucket_size.formula { bytes = 4e9, element = 4, latency_s = 50e-6, rate = rate,
      backward_s = backward_s }
  end

  it("is the smallest whose collectives fit into the backward pass", function()
    -- 0.9 x 1 s leave 0.5 s for latencies and 0.4 s for bytes: 10,000 collectives of 400 kB
    assert.equal(1 << 17, formula(1e10, 1))
    for _, backward_s in ipairs { 0.46, 0.5, 0.7, 2 } do
      local bytes = 4 * formula(1e10, backward_s)
      local function filled(b) return 4e9 / b * 50e-6 + 0.4 end
      assert.is_true(filled(bytes) <= 0.9 * backward_s)
      assert.is_true(bytes == 4 << 16 or filled(bytes / 2) > 0.9 * backward_s)
    end
  end)

  it("balances latencies and the last bucket when they do not fit", function()
    -- sqrt(4e9 x 50e-6 x 1e10): 44.7 MB, so 16 x 2^20 elements
    assert.equal(16 << 20, formula(1e10, 0.1))
    -- at most all in one
    assert.equal(1 << 30, formula(1e16, 1e-9))
  end)

  it("starts with more elements on more ranks", function()
    assert.same({ 128 << 20, 512 << 20 }, { bucket_size.start(256), bucket_size.start(257) })
  end)

  it("tries sizes around it that divide the table differently", function()
    assert.same({ 1 << 20, 1 << 18, 1 << 19, 1 << 21 }, bucket_size.around(1 << 20, 2e6 // 1 | 0))
    assert.same({ 1 << 16 }, bucket_size.around(1 << 16, 1000))
    assert.same({ 1 << 17, 1 << 16 }, bucket_size.around(1 << 17, 100000))
  end)

  it("keeps the first unless another is clearly faster", function()
    local function best(...)
      local tried = {}
      for i, seconds in ipairs { ... } do
        tried[i] = { elements = i, seconds = seconds }
      end
      return bucket_size.best(tried, 1.01)
    end
    assert.equal(1, best(1, 0.995, 2))
    assert.equal(3, best(1, 0.98, 0.9))
    assert.equal(2, best(1, 0.905, 0.9))
  end)
end)
