--- Predicted and measured seconds and bytes of a run.
local folder = require "spec.support.folder"
local run = require "moonreel.run"
local measured = require "moonreel.trainer.measured"

describe("predicted and measured values", function()
  it("are compared by the median of the newest steps, and reported when 10 % apart", function()
    local t = measured.new()
    t:expect("a", "first", 1)
    t:expect("b", "second", 1)
    for i = 1, 300 do
      -- slow first steps are left out
      t:add("a", i < 190 and 9 or 1.05)
      t:add("b", 1.2)
    end
    t:add("c", 7)
    local rows = t:rows()
    assert.same({ "first", 300, 1, 1.05 }, { rows[1].bucket, rows[1].steps, rows[1].predicted_s,
      rows[1].measured_s })
    assert.is_true(math.abs(rows[1].off - 0.05) < 1e-9)
    -- one step is too few
    assert.same({ "c", 1 }, { rows[3].bucket, rows[3].steps })
    assert.is_nil(rows[3].measured_s or rows[3].off)
    assert.same({ "bucket second took 1200.0 ms a step, 1000.0 ms were predicted: +20 %" },
      t:lines())
    assert.same({ "times of steps are not compared with the prediction: busy" }, t:lines "busy")
    -- steps that differ more than that from each other are not compared
    local noisy = measured.new()
    noisy:expect("a", "first", 1)
    for i = 1, 100 do
      noisy:add("a", 1.2 + 0.2 * (i % 3 - 1))
    end
    local row = noisy:rows()[1]
    assert.is_true(row.off > 0.19 and row.spread > 0.3, row.spread)
    assert.same({}, noisy:lines "busy")
  end)

  it("of bytes are reported when the process became 10 % larger than predicted", function()
    local function report(had, rendering)
      local t = measured.new()
      t:add_rendering(rendering or 0)
      t:expect("a", "first", 1, 400e6)
      t:expect("b", "second", 1, 500e6)
      t:add("a", 1, had)
      return t:lines()
    end
    assert.same({ "600 MB were resident, 500 MB were predicted: +20 %" }, report(600e6))
    assert.same({}, report(600e6, 90e6))
    assert.same({ "400 MB were resident, 500 MB were predicted: -20 %" }, report(400e6))
    assert.same({}, report(540e6))
    -- on a GPU there is no prediction for the process
    local t = measured.new()
    t:expect("a", "first", 1)
    t:add("a", 1, 600e6)
    assert.same({}, t:lines())
  end)

  it("are read from a journal, also of a resumed run", function()
    local dir = folder.new()
    local journal <close> = run.journal(dir.path)
    journal:append { kind = "start", update_s = 0.5, began_bytes = 12,
      buckets = { { key = "6x32x32", bucket = "32px 6x32x32", seconds = 1 } } }
    journal:append { kind = "bucket", key = "1x32x32", bucket = "32px 1x32x32", seconds = 2 }
    for i = 1, 5 do
      journal:append { kind = "step", batches = 1, bucket = "6x32x32", time_s = 2 + i % 2,
        data_wait_s = i % 2 }
      journal:append { kind = "step", batches = 2, bucket = "6x32x32", time_s = 9,
        data_wait_s = 0 }
    end
    local t, facts = measured.of_run(dir.path)
    assert.same({ { key = "6x32x32", bucket = "32px 6x32x32", steps = 5, predicted_s = 1.5,
      measured_s = 2, off = 2 / 1.5 - 1, spread = 0.0 }, { key = "1x32x32",
      bucket = "32px 1x32x32", steps = 0, predicted_s = 2.5 } }, t:rows())
    assert.same({ began = 12, device = "cpu" }, facts)
    journal:append { kind = "end", resident_bytes = 77,
      buckets = { { key = "1x32x32", measured_bytes = 70 } } }
    t, facts = measured.of_run(dir.path)
    assert.same({ 77, 70 }, { facts.resident, t:rows()[2].measured_bytes })
    dir:remove()
  end)

  it("leave out fields that damaged lines of a journal lack", function()
    local dir = folder.new()
    dir:write("journal.jsonl", table.concat({ '3', 'null', '"step"', '[1]', '{"kind":3}',
      '{"kind":"start","update_s":"x","rounds":[],"machine":7,"began_bytes":{},'
        .. '"buckets":[4,{"key":5},{"key":"a"},{"key":"b","seconds":1,"bucket":2}]}',
      '{"kind":"bucket","key":{}}', '{"kind":"step","batches":1,"bucket":"b","time_s":1}',
      '{"kind":"step","batches":1,"bucket":"b","time_s":2,"data_wait_s":1}',
      '{"kind":"end","resident_bytes":"x","buckets":[{},{"key":"b","measured_bytes":"x"}]}' }, "\n")
      .. "\n")
    local t, facts = measured.of_run(dir.path)
    assert.same({ { key = "b", bucket = "b", steps = 1, predicted_s = 1 } }, t:rows())
    assert.same({ device = "cpu" }, facts)
    dir:remove()
  end)

  it("count steps in which all ranks had equal numbers of batches of one bucket", function()
    local dir = folder.new()
    local journal <close> = run.journal(dir.path)
    journal:append { kind = "start", update_s = 0.25, talk_s = 0.25, rounds = 3, ranks = 2,
      machine = { threads = 1 }, buckets = { { key = "a", bucket = "A", seconds = 1 } } }
    for _ = 1, 5 do
      for _, even in ipairs { true, false } do
        journal:append { kind = "step", batches = 6, even = even, bucket = "a",
          time_s = even and 4 or 9, data_wait_s = 0 }
      end
    end
    local t, facts = measured.of_run(dir.path)
    local row = t:rows()[1]
    assert.same({ 5, 3.5, 4 }, { row.steps, row.predicted_s, row.measured_s })
    assert.same({ 2, 1 }, { facts.ranks, facts.threads })
    dir:remove()
  end)
end)
