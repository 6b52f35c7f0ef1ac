--- The events of a run from its journal, with steps that were undone.
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local events = require "moonreel.runs.events"

describe("the events of a run", function()
  local function report(lines)
    local one, kinds = events.new(), {}
    for i, line in ipairs(lines) do
      kinds[i] = one:add(line)
    end
    return one, kinds
  end

  local function step(n, loss) return { kind = "step", step = n, loss = loss, wall = 100 + n } end
  local function start(n) return { kind = "start", step = n, wall = 50 } end

  local function losses(one)
    local list = {}
    for i, line in ipairs(one:curve()) do
      list[i] = ("%d:%g"):format(line.step, line.loss or -1)
    end
    return table.concat(list, " ")
  end

  it("is one curve: a session that resumes undoes later steps", function()
    local one, kinds = report { start(0), step(1, 5), step(2, 4), step(3, 3), { kind = "save",
      step = 2 }, start(2), step(3, 9) }
    assert.equal("1:5 2:4 3:9", losses(one))
    assert.same({ "session", "step", "step", "step", "event", "session", "step" }, kinds)
    assert.equal(1, #one.undone)
    assert.equal(3, one.undone[1].loss)
    assert.same({ { 1, 3 }, { 3, 3 } }, { { one.sessions[1].first, one.sessions[1].last },
      { one.sessions[2].first, one.sessions[2].last } })
    assert.same({ 3, 103, 103 }, { one.highest, one.sessions[2].ended, one.last.wall })
    assert.equal(3, #one.events)
  end)

  it("follows a rollback inside a session, and skipped steps", function()
    local one, kinds = report { start(0), step(1, 5), { kind = "skip", step = 2 }, step(3, 9),
      { kind = "rollback", step = 1, from = 3 }, step(2, 4) }
    assert.equal("1:5 2:4", losses(one))
    assert.equal("rollback", kinds[5])
    assert.equal(2, #one.undone)
    one:add(start(0))
    assert.equal("", losses(one))
    assert.equal(0, one.highest)
  end)

  it("skips lines of other versions and gaps", function()
    local one, kinds = report { { kind = "step", step = "7" }, { kind = "start" }, step(4, 1), {},
      { kind = "new", step = 9 } }
    assert.equal("4:1", losses(one))
    assert.same({ "event", "event", "step", "event", "event" }, kinds)
    assert.equal(0, #one.sessions)
  end)

  it("is read from a file, without a cut last line", function()
    local dir <close> = folder.new()
    dir:write("journal.jsonl", json.encode(start(0)) .. "\n" .. json.encode(step(1, 2)) .. "\nno\n"
      .. json.encode(step(2, 1)))
    local one = events.read(dir.path)
    assert.equal("1:2", losses(one))
  end)

  it("keeps the requested fields of each line", function()
    local dir <close> = folder.new()
    local lines = { start(0), step(1, 3), step(2, 4), { kind = "save", step = 2 },
      { kind = "rollback", step = 1 }, step(2, 5) }
    for i, line in ipairs(lines) do
      lines[i] = json.encode(line)
    end
    dir:write("journal.jsonl", table.concat(lines, "\n") .. "\n")
    local one = events.read(dir.path, function(line) return line.loss end)
    assert.same({ { 3, 5 }, {}, {}, 2 }, { one.steps, one.undone, one.events, one.highest })
  end)

  it("has the steps that count of all stages, in order", function()
    local dir <close> = folder.new()
    dir:write("a/journal.jsonl", json.encode(start(0)) .. "\n" .. json.encode(step(1, 5)) .. "\n")
    dir:write("b/journal.jsonl", json.encode(start(1)) .. "\n" .. json.encode(step(2, 4)) .. "\n")
    local list = events.steps { { dir = dir.path .. "/a", stage = "a" },
      { dir = dir.path .. "/b", stage = "b" }, { dir = dir.path .. "/c", stage = "c" } }
    assert.same({ 2, "a", 5, "b", 4 }, { #list, list[1].stage, list[1].loss, list[2].stage,
      list[2].loss })
  end)
end)
