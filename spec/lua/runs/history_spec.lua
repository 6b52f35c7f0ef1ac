--- The history of a run, joined from several files.
local folder = require "spec.support.folder"
local history = require "moonreel.runs.history"
local notes = require "moonreel.runs.notes"
local made_run = require "spec.support.made_run"

local start, step = made_run.start, made_run.step

describe("the history of a run", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  local function texts(list)
    local out = {}
    for i, one in ipairs(list) do
      out[i] = ("%s %s"):format(one.kind, one.entry.step or "-")
    end
    return table.concat(out, ", ")
  end
  local function append(name, lines)
    local file <close> = assert(io.open(dir.path .. "/" .. name, "ab"))
    file:write(made_run.text(lines))
  end

  it("is in the order of time, and continues after the last line read", function()
    local one = history.open(dir.path, 2)
    assert.same({}, one:more())
    append("journal.jsonl", { start(0), step(1, 5), step(2, 4), step(3, 4), step(4, 4) })
    append("quarantine.jsonl", { { key = "k", time = 102.5 } })
    append("notes.jsonl", { { kind = "note", text = "x", step = 1, wall = 101.5 } })
    assert.equal("start 0, step 1, note 1, step 2, failed -, step 4", texts(one:more()))
    append("journal.jsonl", { { kind = "gap", lines = 3 },
      { kind = "skip", step = 5, wall = 105 } })
    notes.add(dir.path, "later", 5)
    assert.equal("gap -, skip 5, note 5", texts(one:more()))
    assert.same({}, one:more())
  end)

  it("shows the first step of each launch, and steps that were undone", function()
    append("journal.jsonl", { start(0), step(1, 5), step(2, 4), step(3, 4), start(1), step(2, 4),
      step(3, 4) })
    assert.equal("start 0, step 1, step 3, start 1, step 2, step 3", texts(history.open(dir.path,
      3):more()))
  end)

  it("shows a host once for each launch, and when its faults change", function()
    local function node(n, host, ...)
      return { kind = "node", step = n, host = host, faults = ... and { ... } or nil }
    end
    append("journal.jsonl", { start(0), node(1, "a"), node(2, "b"), node(3, "a"), node(4, "a", "x"),
      node(5, "a", "x"), node(6, "a", "y"), node(7, "a"), node(8, "b"), start(9), node(10, "a") })
    assert.equal("start 0, node 1, node 2, node 4, node 6, node 7, start 9, node 10",
      texts(history.open(dir.path, 3):more()))
    assert.equal(11, #history.open(dir.path, 1):more())
  end)

  it("follows stages that begin later, and names them", function()
    dir:write("settings.json", '{"settings":{"stages":[{"name":"a"},{"name":"b"}]}}')
    local one = history.open(dir.path, 1)
    dir:write("stages/a/journal.jsonl", made_run.text { start(0), step(1, 5) })
    assert.equal("start 0, step 1", texts(one:more()))
    dir:write("stages/b/journal.jsonl", made_run.text { start(1) })
    local list = one:more()
    assert.equal("start 1", texts(list))
    assert.matches("step 1 of 40 of stage b", list[1].text)
  end)
end)
