--- Searches batches whose steps take as long as that of one bucket, with artificial times and in a
-- real trial.
-- Covers: lua/moonreel/job/batch_search.lua
local base = require "moonreel.core.base"
local batch_search = require "moonreel.job.batch_search"
local fails = require "spec.support.fails"
local job = require "moonreel.job"
local json = require "moonreel.core.json"
local settings = require "moonreel.settings"
local small_set = require "spec.support.small_set"

describe("job = batch_search", function()
  local dir, words
  local real = batch_search.measure
  setup(function() dir, words = small_set.new() end)
  after_each(function() batch_search.measure = real end)
  teardown(function() dir:remove() end)

  local function search(...)
    local list = table.move(words, 1, #words, 1, {})
    for _, word in ipairs { "job=batch_search", "name=bs", ... } do
      list[#list + 1] = word
    end
    local lines = {}
    local code, facts = job.run(settings.bake(dir.path .. "/small.lua", list),
      { write = function(line) lines[#lines + 1] = line end })
    assert.equal(0, code)
    return facts, table.concat(lines, "\n")
  end

  -- a step takes frames x batch seconds; above `most` it does not fit
  local tried
  local function known(most)
    tried = {}
    function batch_search.measure(_, bucket, batch)
      tried[#tried + 1] = ("%d:%d"):format(bucket.frames, batch)
      if bucket.frames * batch > most then
        base.raise("MR_E_MEMORY", "too large")
      end
      return bucket.frames * batch + 0.5
    end
  end

  it("finds the largest batch whose step is below a given time", function()
    known(1000)
    local facts, text = search("batch_search.step_time=20", "batch_search.spread={'small': "
      .. "{1: 30, 5: 1}}")
    -- 19.5 s for 19 stills, 15.5 for 3 clips; 9 frames have no spread and are not searched
    assert.same({ { "small", 1, 19, 19.5 }, { "small", 5, 3, 15.5 } }, { { facts.rows[1].resolution,
      facts.rows[1].frames, facts.rows[1].batch, facts.rows[1].seconds },
      { facts.rows[2].resolution, facts.rows[2].frames, facts.rows[2].batch,
        facts.rows[2].seconds } })
    assert.equal(2, #facts.rows)
    -- from the middle of 1 to 33
    assert.same({ "1:17", "1:25", "1:21", "1:19", "1:20" }, table.move(tried, 1, 5, 1, {}))
    assert.matches("resolution  frames  was  batch size  step time\nsmall +1 +3 +19 +19%.5000\n",
      text)
    assert.matches('%["small"%] = { %[1%] = { 0%.5, 19 }, %[5%] = { 0%.7, 3 }, %[9%] = '
      .. '{ 1%.0, 2 } },', text)
    local written = json.decode(base.read_file(facts.path), facts.path)
    assert.equal(20, written.step_time)
    assert.same({ 19, 3 }, { written.buckets[1].batch, written.buckets[2].batch })
  end)

  it("takes the time of the largest batch of one bucket that fits", function()
    known(40)
    local facts, text = search("batch_search.base=['small', '9']", "batch_search.spread={'small': "
      .. "{1: 60, 9: 10}}")
    -- 4 clips of 9 frames fit, and take 36.5 s; 35 stills take less
    assert.matches("a step may take 36%.5000 s", text)
    assert.same({ 35, 4 }, { facts.rows[1].batch, facts.rows[2].batch })
    assert.matches("small, 9 frames, batch 6: does not fit", text)
  end)

  it("reports 0 when no batch is fast enough, or the bucket has no sample", function()
    known(1000)
    local facts, text = search("batch_search.step_time=3", "bucket_config.small.40=(1.0, 2)",
      "batch_search.spread={'small': {5: 1, 40: 1}}")
    assert.same({ 0, 0 }, { facts.rows[1].batch, facts.rows[1].seconds })
    assert.is_nil(text:match "no sample")
    function batch_search.measure(r, bucket, batch) return real(r, bucket, batch) end
    facts, text = search("batch_search.step_time=1000", "bucket_config.small.40=(1.0, 2)",
      "batch_search.spread={'small': {40: 1}}")
    assert.same({ 0, 0 }, { facts.rows[1].batch, facts.rows[1].seconds })
    assert.matches("small, 40 frames: no sample of the index enters it", text)
    assert.matches("%[40%] = { 1%.0, 2 }", text)
  end)

  it("does not try batches that do not fit according to the layout", function()
    known(math.maxinteger)
    local _, text = search("batch_search.step_time=1e18", "batch_search.spread={'small': "
      .. "{9: 90000000}}")
    local most = math.tointeger(text:match("small, 9 frames: at most a batch of (%d+) fits"))
    assert.is_true(most > 100 and most < 90000000)
    for _, one in ipairs(tried) do
      assert.is_true(math.tointeger(one:match(":(%d+)")) <= most)
    end
  end)

  it("measures whole training steps", function()
    local facts = search("batch_search.step_time=1000", "batch_search.spread={'small': {5: 1}}")
    assert.equal(3, facts.rows[1].batch)
    assert.is_true(facts.rows[1].seconds > 0)
  end)

  it("requires a field that sets the time, and refuses fields that it does not read", function()
    fails("MR_E_RECIPE", "base or step_time has to set the time of a step", search)
    fails("MR_E_RECIPE", "bucket_config has no bucket 512, 408 frames", search,
      "batch_search.base=['512', '408']")
    fails("MR_E_RECIPE", "cached: job = batch_search does not read it", search, "cached=true")
  end)
end)
