--- What a run predicts of its buckets before the first step.
local small_run = require "spec.support.small_run"

local runs = small_run.new()
local bake, train, entries = runs.bake, small_run.train, small_run.entries

describe("trainer.predict", function()
  teardown(function() runs:remove() end)

  it("compiles the largest bucket first, others when their batch comes, with equal losses",
    function()
    local small = "bucket_config=recipe.replace{32px: {6: (1, 4), 1: (1, 2)}}"
    local function losses(dir)
      local list = {}
      for _, line in ipairs(entries(dir, "step")) do
        list[#list + 1] = line.loss
      end
      return list
    end
    local ok, code, _, dir = train(bake("steps=12", small, "name=ahead"))
    assert.is_true(ok, tostring(code))
    local all = entries(dir, "start")[1].buckets
    assert.is_true(#all > 1)
    local predict = require "moonreel.trainer.predict"
    local ahead = predict.ahead
    predict.ahead = 0
    local done, result, lines, later = train(bake("steps=12", small, "name=later",
      "programs_bytes=0"))
    predict.ahead = ahead
    assert.is_true(done, tostring(result))
    local first, rest = entries(later, "start")[1].buckets, entries(later, "bucket")
    assert.equal(1, #first)
    local said = table.concat(lines, "\n")
    assert.is_truthy(said:find(("%d more buckets"):format(#all - 1), 1, true), said)
    assert.matches("%d+ of %d+ programs were closed to save memory and then compiled again; "
      .. "try: a larger programs_bytes\n", said)
    for _, row in ipairs(all) do
      assert.is_true(row.peak_bytes <= first[1].peak_bytes)
    end
    assert.is_true(#rest > 0 and rest[1].peak_bytes > 0 and rest[1].samples > 0)
    assert.same(losses(dir), losses(later))
  end)

  it("includes encoders that run in parallel with the step", function()
    local encoders = require "moonreel.trainer.encoders"
    local new = encoders.new
    function encoders.new()
      return { weights = 1e12, batch = function(_, b) return 100 * b.batch, 2e12, 0 end,
        close = function() end }
    end
    local ok, code, lines, dir = train(bake("steps=1", "name=encoders", "ckpt_every=0"))
    encoders.new = new
    assert.is_true(ok, tostring(code))
    local start = entries(dir, "start")[1]
    local row = start.buckets[1]
    assert.equal(800, row.encode_s)
    assert.is_true(row.seconds > 800 and row.seconds < 801)
    assert.is_true(row.peak_bytes > 3e12 and row.peak_bytes < 3.1e12)
    assert.is_true(row.resident_bytes > row.peak_bytes)
    -- the reported time is that of the whole step
    local said = tonumber(lines[2]:match "about ([%d.]+) ms a step")
    assert.is_true(math.abs(said / 1e3 - row.seconds - start.update_s) < 1e-3, lines[2])
  end)
end)
