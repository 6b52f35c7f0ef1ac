--- Where the time of a run went.
local account = require "moonreel.runs.account"
local folder = require "spec.support.folder"
local made_run = require "spec.support.made_run"

local start, step = made_run.start, made_run.step

describe("the time of a run", function()
  local function rows(lines)
    local one, by = account.new(), {}
    for _, line in ipairs(lines) do
      one:add(line)
    end
    for _, row in ipairs(one:rows()) do
      by[row.what] = row
    end
    return by
  end

  it("goes into steps, waits, saves, steps taken back, restarts and pauses", function()
    -- 2 steps of 0.75 s, one of them waits 0.25 s; the third is taken back; killed for 10 s
    local by = rows { start(0, { wall = 100 }), step(1, 5, { wall = 101, data_wait_s = 0 }),
      step(2, 5, { wall = 102 }), { kind = "save", event = "commit", copy_s = 0.125, wall = 102 },
      { kind = "save", event = "skip", copy_s = 9, wall = 102 }, step(3, 5, { wall = 103 }),
      start(2, { wall = 113 }), step(3, 5, { wall = 114, data_wait_s = 0 }),
      { kind = "stop", step = 3, wall = 115 }, start(3, { wall = 145 }),
      { kind = "end", step = 3, wall = 147 } }
    local want = { training = 2.0, ["waiting for data"] = 0.25, saving = 0.125,
      ["steps taken back"] = 0.75, ["restarting after a failure"] = 10,
      ["stopped on request"] = 30, ["whole run"] = 47,
      ["other work of a launch"] = 7 - 2.0 - 0.25 - 0.125 - 0.75 }
    for what, seconds in pairs(want) do
      assert.equal(seconds, by[what].seconds, what)
      assert.is_true(math.abs(by[what].share - seconds / 47) < 1e-12, what)
    end
    assert.same({ 3, 1, 1, 3 }, { by.training.n, by.saving.n, by["steps taken back"].n,
      by["whole run"].n })
  end)

  it("is not known of a run without lines, or with lines of other versions", function()
    assert.is_nil(rows({}).training.share)
    local by = rows { { kind = "start" }, { kind = "step", step = 1, time_s = "x", wall = "y" },
      { kind = "save", event = "commit" } }
    assert.equal(0, by["whole run"].seconds)
  end)

  it("is read for each part of a run", function()
    local dir <close> = folder.new()
    dir:write("a/journal.jsonl", made_run.text { start(0), step(1, 5) } .. '{"kind"')
    local list = account.of { { dir = dir.path .. "/a" }, { dir = dir.path .. "/b" } }
    assert.same({ 1, 0, 2 }, { list[1]:rows()[1].n, list[2]:rows()[1].n, #list })
  end)
end)
