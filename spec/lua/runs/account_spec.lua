--- How the time of a run was spent.
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

  it("consists of steps, waits, saves, lost steps, restarts and pauses", function()
    -- 2 steps of 0.75 s, of which one waits 0.25 s; the third is lost; killed for 10 s
    local by = rows { start(0, { wall = 100 }), step(1, 5, { wall = 101, data_wait_s = 0 }),
      step(2, 5, { wall = 102 }), { kind = "save", event = "commit", copy_s = 0.125, wall = 102 },
      { kind = "save", event = "skip", copy_s = 9, wall = 102 }, step(3, 5, { wall = 103 }),
      start(2, { wall = 113 }), step(3, 5, { wall = 114, data_wait_s = 0 }),
      { kind = "stop", step = 3, wall = 115 }, start(3, { wall = 145 }),
      { kind = "end", step = 3, wall = 147 } }
    local want = { training = 2.0, ["waiting for data"] = 0.25, saving = 0.125,
      ["steps taken back"] = 0.75, ["restarting after a failure"] = 10,
      ["ended or stopped, until the next launch"] = 30, ["whole run"] = 47,
      ["other work of a launch"] = 7 - 2.0 - 0.25 - 0.125 - 0.75 }
    for what, seconds in pairs(want) do
      assert.equal(seconds, by[what].seconds, what)
      assert.is_true(math.abs(by[what].share - seconds / 47) < 1e-12, what)
    end
    assert.same({ 3, 1, 1, 3 }, { by.training.n, by.saving.n, by["steps taken back"].n,
      by["whole run"].n })
  end)

  it("is computed for each host from the launches that it took part in", function()
    local a, b, c = { name = "a", ranks = 3 }, { name = "b", ranks = 1 }, { name = "c", ranks = 1 }
    local function waits(...)
      return { host_waits = { data_s = { ... }, others_s = { 0, 0.5 } } }
    end
    local one = account.new()
    for _, line in ipairs { start(0, { wall = 100, hosts = { a, b } }),
      step(1, 5, waits(0.5, 0.25)), step(2, 5, waits(0.5, 9)),
      start(1, { wall = 112, hosts = { a, c } }), step(2, 5, { wall = 113, data_wait_s = 0.5 }),
      { kind = "save", event = "commit", copy_s = 0.125, wall = 114 } } do
      one:add(line)
    end
    local function all(list)
      local by = {}
      for _, row in ipairs(list) do
        by[row.what] = row.seconds
      end
      return { by.training, by["waiting for data"], by["waiting for other ranks"], by.saving,
        by["steps taken back"], by["restarting after a failure"], by["whole run"], list[9].n }
    end
    local lists = one:by_host()
    assert.same({ "a", "b", "c" }, { lists[1][1].host, lists[2][1].host, lists[3][1].host })
    assert.same({ 0.5, 1.0, 0.0, 0.125, 0.75, 10, 14, 2 }, all(lists[1]))
    assert.same({ 0.0, 0.25, 0.5, 0, 0.75, 0, 2, 1 }, all(lists[2]))
    assert.same({ 0.25, 0.5, 0.0, 0.125, 0.0, 0, 2, 1 }, all(lists[3]))
    -- host a has three of four ranks
    assert.same({ 0.1875 + 0.25, 0.4375 + 0.5, 0.125, 0.125, 0.75, 10, 14, 2 }, all(one:rows()))
  end)

  it("is not split by host when a line lacks its hosts or has invalid ones", function()
    for _, hosts in ipairs { { { name = "a" } }, { 1, { name = 2 } }, "a" } do
      local one = account.new()
      one:add(start(0, { hosts = hosts }))
      one:add(step(1, 5, { host_waits = { data_s = { "x" }, others_s = 3 } }))
      one:add(step(2, 5, { host_waits = 7 }))
      assert.same({}, one:by_host())
      assert.same({ 1.0, 0.5 }, { one:rows()[1].seconds, one:rows()[2].seconds })
    end
  end)

  it("is unknown for a run without lines, or with lines of other versions", function()
    assert.is_nil(rows({}).training.share)
    local by = rows { { kind = "start" }, { kind = "step", step = 1, time_s = "x", wall = "y" },
      { kind = "save", event = "commit" } }
    assert.equal(0, by["whole run"].seconds)
  end)

  it("is computed for each stage of a run", function()
    local dir <close> = folder.new()
    dir:write("a/journal.jsonl", made_run.text { start(0), step(1, 5) } .. '{"kind"')
    local list = account.of { { dir = dir.path .. "/a" }, { dir = dir.path .. "/b" } }
    assert.same({ 1, 0, 2 }, { list[1]:rows()[1].n, list[2]:rows()[1].n, #list })
  end)
end)
