--- Settings of several sources: weights by samples, phases, errors.
-- Covers: lua/moonreel/settings/sources.lua
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local sources = require "moonreel.settings.sources"

local place
setup(function() place = folder.new() end)
teardown(function() place:remove() end)

local function bake(dataset)
  return place:bake(([[return recipe { virtual_ranks = 2, accumulate = 3,
    bucket_config = { ["144p"] = { [1] = { 1.0, 10 }, [51] = { 1.0, 4 } } },
    dataset = {
%s
    } }]]):format(dataset))
end

local function knots(list, i)
  local out = {}
  for k, row in ipairs(list[i].weights) do
    out[k] = ("%d:%.3g"):format(row[1], row[2])
  end
  return table.concat(out, " ")
end

describe("settings.sources", function()
  it("returns one source without a name, or several by name", function()
    local one = sources.of(bake [[data_path = "a.mrx"]])
    assert.same({ 1, "", "a.mrx" }, { #one, one[1].name, one[1].path })
    assert.same({}, sources.of(bake ""))
    local list = sources.of(bake [[sources = { b = { data_path = "b.mrx", weight = 3, epochs = 2 },
      a = { data_path = "a.mrx", data_change = "next" } }]])
    assert.same({ "a", "b" }, { list[1].name, list[2].name })
    assert.same({ "next", "refuse", 2 }, { list[1].change, list[2].change, list[2].epochs })
    assert.equal("0:0.25", knots(list, 1))
    assert.equal("0:0.75", knots(list, 2))
  end)

  it("returns no source without a path, and refuses an empty path", function()
    fails("MR_E_RECIPE", "dataset%.data_path is empty; expected an index NAME%.mrx, or a table of "
      .. "clips", sources.of, bake [[data_path = ""]])
    fails("MR_E_RECIPE", "dataset%.sources%.a%.data_path is empty; expected", sources.of,
      bake [[sources = { a = { data_path = "" } }]])
  end)

  it("blends phases over a 20th of them, and at least 200 steps", function()
    local form = [[sources = { a = { data_path = "a.mrx" }, b = { data_path = "b.mrx", weight = 4 } },
      phases = { { samples = %s, weights = { a = 3, b = 1 } },
        { samples = %s, weights = { a = 0, b = 5 } }, { weights = { a = 4 } } }]]
    local list = sources.of(bake(form:format("1000000", "2000000")))
    assert.equal("0:0.75 1000000:0.75 1100000:0 3000000:0 3100000:0.5", knots(list, 1))
    assert.equal("0:0.25 1000000:0.25 1100000:1 3000000:1 3100000:0.5", knots(list, 2))
    -- a step has at most 10 * 2 * 3 samples; a blend is never longer than its phase
    list = sources.of(bake(form:format("1000", "50000")))
    assert.equal("0:0.75 1000:0.75 13000:0 51000:0 63000:0.5", knots(list, 1))
    list = sources.of(bake(form:format("1000", "5000")))
    assert.equal("0:0.75 1000:0.75 6000:0 6000:0 11000:0.5", knots(list, 1))
    local slow = form:gsub("a = 0, b = 5 }", "%0, blend = 5000")
    list = sources.of(bake(slow:format("1000", "5000")))
    assert.equal("0:0.75 1000:0.75 6000:0 6000:0 11000:0.5", knots(list, 1))
    list = sources.of(bake(form:gsub("a = 0, b = 5 }", "%0, blend = 0"):format("1000", "5000")))
    assert.equal("0:0.75 1000:0.75 1000:0 6000:0 11000:0.5", knots(list, 1))
  end)

  it("reports errors with their line and a proposal", function()
    local two = [[sources = { a = { data_path = "a.mrx" },
      b = { data_path = "b.mrx" } },
      ]]
    for text, pattern in pairs {
      [two .. 'data_path = "c.mrx"'] = "%.lua:6: dataset.data_path is \"c.mrx\", but "
        .. "dataset.sources has a, b; expected only one of the two fields; try: "
        .. "dataset.data_path=none",
      [two .. "phases = { { samples = 5, weights = { c = 1 } } }"] = "%.lua:6: "
        .. "dataset.phases.1.weights: there is no source 'c'.*expected one of a, b",
      [two .. "phases = { { weights = { a = 2 } }, { weights = { b = 2 } } }"] = "%.lua:6: "
        .. "dataset.phases.1 has no end %(samples%), but 1 phases follow it; expected samples "
        .. "above 0",
      [two .. "phases = { { weights = { a = 0, b = 0 } } }"] = "%.lua:6: dataset.phases.1: no "
        .. "source has a weight above 0; try: a weight for one of a, b",
      [two .. "phases = { { samples = 9 }, { samples = 5, blend = 6 } }"] = "%.lua:6: "
        .. "dataset.phases.2.blend is 6 samples, more than the phase of 5; expected at most the "
        .. "samples",
      [two .. "phases = { [2] = { samples = 5 } }"] = "dataset.phases has phase 2 but no phase 1; "
        .. "expected consecutive numbers from 1",
      ['sources = { a = { data_path = "a.mrx", weight = 0 }, b = { data_path = "b.mrx" } }'] =
        "%.lua:4: dataset.sources.a: its weight is 0 in every phase; expected a weight above 0 "
          .. "in some phase; try: dataset.sources.a.weight=1, or leave it out",
      ['sources = { a = { data_path = "a.mrx", weight = 1e-12 }, b = { data_path = "b.mrx" } }'] =
        "%.lua:4: dataset.sources.a.weight is 1e%-12, but the other weights sum "
        .. "to 1, so no sample of it is ever drawn; expected 0, or 2.35e%-10 and more",
      ['sources = { a = { data_path = "a.mrx", weight = 1e11 }, b = { data_path = "b.mrx" } }'] =
        "%.lua:4: dataset.sources.b.weight is 1, but the other weights sum to 1e%+11",
      [two .. "phases = { { samples = 9 }, { weights = { b = 1e-12 } } }"] = "%.lua:6: "
        .. "dataset.phases.2.weights.b is 1e%-12, but the other weights sum to 1",
      ['sources = { a = { data_path = "a.mrx", quantiles = { 0, 0.5 } } }'] =
        "%.lua:4: dataset.sources.a.column is not set; expected the column of the index whose "
          .. "quantiles",
      ['sources = { a = { data_path = "a.mrx", column = "c", quantiles = { 0.5, 0.5 } } }'] =
        "%.lua:4: dataset.sources.a.quantiles is { 0.5, 0.5 }; expected the second number above",
      ["phases = { { samples = 5 } }"] = "%.lua.*: dataset.phases has weights of sources, but "
        .. "dataset.sources is not set; try: dataset.sources",
      ['sources = { a = { weight = 1 } }'] = "%.lua:4: dataset.sources.a has no data_path",
    } do
      local ok, problem = pcall(function() return sources.of(bake(text)) end)
      assert.is_false(ok, text)
      assert.matches(pattern, tostring(problem))
    end
  end)

  it("leaves wrong numbers to the checks of fields", function()
    for text, pattern in pairs { ["weight = -1"] = "number from 0",
      ["weight = 0/0"] = "expected number", ["weight = 'much'"] = "expected number",
      ["epochs = 1.5"] = "expected integer", ["wieght = 1"] = "did you mean .*weight" } do
      local ok, problem = pcall(bake, 'sources = { a = { data_path = "a.mrx", ' .. text .. " } }")
      assert.is_false(ok, text)
      assert.matches(pattern, tostring(problem))
      assert.matches("%.lua:4", tostring(problem))
    end
  end)

  it("computes the epochs of each source until all samples were drawn", function()
    local function passes(dataset, ...)
      local out = {}
      for i, n in ipairs(sources.passes(sources.of(bake(dataset)), { ... })) do
        out[i] = math.floor(n * 20 + 0.5) / 20
      end
      return out
    end
    local two = [[sources = { a = { data_path = "a.mrx", weight = %s },
      b = { data_path = "b.mrx" %s } } %s]]
    assert.same({ 3, 1 }, passes(two:format("3", "", ""), 1000, 1000))
    assert.same({ 1, 1 }, passes(two:format("3", "", ""), 3000, 1000))
    local many = passes(two:format("1", ", weight = 0.001", ""), 1000, 1000)
    assert.is_true(math.abs(many[1] - 1000) < 1 and many[2] == 1, many[1])
    assert.same({ 1, 6 }, passes(two:format("1", "", ""), 6000, 1000))
    assert.same({ 1, 2 }, passes(two:format("1", ", epochs = 2", ""), 6000, 1000))
    -- Over a ramp of 4000 samples the first source fades out while the second fades in. The second
    -- is complete after 2828 samples, whose square is 8000 times its samples.
    local ramp = two:format("1", "", ", phases = { { samples = 1000, weights = { b = 0 } }, "
      .. "{ samples = 4000, weights = { a = 0 }, blend = 4000 } }")
    assert.same({ 2.85, 1 }, passes(ramp, 1000, 1000))
    -- a source that only the first phase draws
    local half = two:format("1", "", ", phases = { { samples = 1000 }, { weights = { b = 0 }, "
      .. "blend = 0 } }")
    assert.same({ 1, 0.5 }, passes(half, 3000, 1000))
  end)

  it("adds up the buckets of several sources", function()
    local list = sources.of(bake [[sources = { a = { data_path = "a.mrx" },
      b = { data_path = "b.mrx" } }]])
    local function bucket(n, pixels)
      return { resolution = "144p", frames = 51, height = 144, width = 144, samples = n,
        pixels = pixels }
    end
    local all = sources.together(list, {
      { rows = 1100, buckets = { bucket(1000, 4e4) }, dropped = { { why = "small", rows = 100 } } },
      { rows = 510, buckets = { bucket(500, 1e5) }, dropped = { { why = "small", rows = 10 } } } })
    -- samples of the second source count twice, because it is drawn twice
    assert.same({ 1, 1 }, { #all.buckets, #all.dropped })
    assert.is_true(math.abs(all.rows - 2120) <= 1 and math.abs(all.dropped[1].rows - 120) <= 1)
    assert.is_true(math.abs(all.buckets[1].samples - 2000) <= 4, all.buckets[1].samples)
    assert.is_true(math.abs(all.buckets[1].pixels - 7e4) <= 100, all.buckets[1].pixels)
    assert.equal("a (1 times), b (2 times)", all.index)
  end)
end)
