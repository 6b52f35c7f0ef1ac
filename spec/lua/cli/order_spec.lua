--- moonreel order and moonreel data explain, run as by a user.
-- Covers: lua/moonreel/cli/data/explain.lua lua/moonreel/cli/target.lua
local demo_data = require "spec.support.demo_data"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"

local place, recipe, index
setup(function()
  place, index = folder.new(), demo_data.path()
  recipe = place:write("r.lua", ([[return recipe { seed = 5, dataset = { data_path = %q },
    resolutions = { ["32px"] = { pixels = 1024, aspects = { { 1.0, 32, 32 } } } },
    bucket_config = { ["32px"] = { [4] = { 1.0, 5 } } }, accumulate = 2 }]]):format(index))
end)
teardown(function() place:remove() end)

local function run(words, want)
  local out, err, code = folder.moonreel(words)
  assert.equal(want or 0, code, out .. err)
  return out, err
end
local function rows_of(words)
  local list = json.decode((run(words .. " --json")))
  local rows = {}
  for i, one in ipairs(list) do
    rows[i] = one.row
  end
  return table.concat(rows, " "), list
end

describe("moonreel order", function()
  it("prints the samples of a step, the same for any number of ranks", function()
    local both, list = rows_of("order " .. recipe .. " --step 3 --count 2")
    assert.equal(20, #list)
    assert.equal(both, (rows_of("order " .. recipe .. " --step 2 --ranks 2")))
    local first, of_first = rows_of("order " .. recipe .. " --step 2 --ranks 2 --rank 0")
    local second = rows_of("order " .. recipe .. " --step 2 --ranks 2 --rank 1")
    assert.equal(10, #of_first)
    assert.not_equal(first, second)
    assert.same({ 3, 1, 1 }, { list[1].step, list[1].micro, of_first[1].micro })
    assert.equal(32, #list[1].key)
    assert.matches("step +epoch +rank +micro +bucket +row +path +text\n +3 +0 +0 +1 +32px 4 32x32",
      (run("order " .. recipe .. " --step 3")))
  end)

  it("prints the step of a sample", function()
    local _, list = rows_of("order " .. recipe .. " --step 4")
    local _, found = rows_of(("order %s --id %d"):format(recipe, list[7].row))
    assert.same({ 1, 4, list[7].micro }, { #found, found[1].step, found[1].micro })
    assert.equal(found[1].row, select(2, rows_of(("order %s --id %s"):format(recipe,
      found[1].path)))[1].row)
    -- its step was before
    assert.matches("does not come again in this epoch", (run(
      ("order %s --step 5 --id %s"):format(recipe,
      found[1].key), 1)))
  end)

  it("finds a step from the lengths of epochs, and refuses one that never comes", function()
    local far, list = rows_of("order " .. recipe .. " --step 24999999999976 epochs=1000000000000")
    assert.same({ 10, 999999999999 }, { #list, list[1].epoch })
    assert.not_equal(far, (rows_of("order " .. recipe .. " --step 1")))
    local last = "; epoch 0 has 25 of them, each of 2 micro%-batches, and epochs = 1000 %(default%)"
    for step, says in pairs {
        ["25001"] = "all epochs end before this step; expected 1 to 25000" .. last,
      ["999999999999"] = "all epochs end long before this step; expected at most %d+" .. last,
      ["9223372036854775807"] = "all epochs end long before this step; expected at most %d+",
      ["21 steps=20 epochs=0"] = "expected 1 to 20 %(steps, steps=20%); epoch 0 has 25 of them" } do
      local _, err = run("order " .. recipe .. " --step " .. step, 2)
      assert.matches("order: %-%-step " .. step:match("%d+") .. ": " .. says, err)
    end
    assert.equal(10, #select(2, rows_of("order " .. recipe .. " --step 25000 --count 7")))
  end)

  it("refuses wrong usage", function()
    for words, pattern in pairs { [""] = "expected one recipe or run, got 0",
      [recipe .. " --rank 1"] = "%-%-rank 1 of %-%-ranks 1; expected 0 to 0",
      [recipe .. " --id nobody.mp4"] = "no sample 'nobody.mp4'; expected a row from 1 to 300",
      [recipe .. " --id 301"] = "no sample '301'",
      [recipe .. " dataset.data_path=none"] = "data_path is not set, .*; try: %-%-data" } do
      local _, err = run("order " .. words, 2)
      assert.matches(pattern, err)
    end
    local _, err = run("order " .. recipe .. " --data " .. place.path .. "/x.csv", 4)
    assert.matches("no index .*/x.mrx; try: moonreel data ingest .*/x.csv %-o .*/x.mrx", err)
  end)
end)

describe("moonreel data explain", function()
  it("counts samples by bucket, and the others by reason", function()
    local out = run("data explain " .. recipe)
    assert.matches("\n32px +4 +32 +32 +5 +250 +50\nepoch 0: 250 of 300 rows in 50 batches\n"
      .. "  50 rows: pictures, and no length is 1; for example row %d+: .*still", out)
    local report = json.decode((run("data explain --json " .. recipe
      .. " 'bucket_config.32px.4={0.5, 5}' --epoch 2")))
    assert.equal(300, report.samples + report.dropped[1].rows + report.dropped[2].rows)
  end)

  it("counts what the order of a reference leaves out, for its ranks", function()
    for ranks, left in pairs { [1] = 0, [4] = 10 } do
      local words = " compat=opensora-2.0 virtual_ranks=" .. ranks
      local out = run("data explain " .. recipe .. words)
      assert.matches(("epoch 0: %d of 300 rows in %d batches"):format(250 - left,
        (250 - left) // 5), out)
      if left > 0 then
        assert.matches("  10 rows: left over from whole batches, which the reference leaves out; "
          .. "for example row %d+", out)
      end
    end
    -- ranks of a step are those of the reference's iteration, one after another
    local words = "order " .. recipe .. " compat=opensora-1.2 accumulate=1 --step "
    local both = rows_of(words .. "3 --count 2")
    assert.equal(both, (rows_of(words .. "2 --ranks 2")))
    assert.not_equal(both, (rows_of("order " .. recipe .. " accumulate=1 --step 3 --count 2")))
    assert.matches("32px +4 +not kept at random, with probability 1%.0\n", (run("data explain "
      .. recipe .. " compat=opensora-1.2 'bucket_config.32px.4={0.0, 5}' --why-not 9")))
  end)

  it("refuses the name of a source when the recipe names none", function()
    local _, err = run("order " .. recipe .. " --source x --id 5", 2)
    assert.equal("moonreel: --source x: the recipe has no dataset.sources; try: leave --source "
      .. "out\n",
      err)
  end)

  it("reports why a sample is left out", function()
    local out = run("data explain " .. recipe .. " --why-not still-292.png")
    assert.matches("still%-292.png: 1 frames, 32 x 32, 0 fps", out)
    assert.matches("32px +4  pictures, and no length is 1\nepoch 0: enters no bucket", out)
    assert.matches("32px +4  takes it\nepoch 0: enters 32px, 4 frames of 32 x 32",
      (run("data explain " .. recipe .. " --why-not 9")))
  end)
end)
