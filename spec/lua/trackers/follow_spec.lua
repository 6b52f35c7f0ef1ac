--- Splits a journal into parts, each of which has rising steps.
-- Covers: lua/moonreel/trackers/follow.lua
local folder = require "spec.support.folder"
local follow = require "moonreel.trackers.follow"
local tracked = require "spec.support.tracked"

local start, step = tracked.start, tracked.step

-- a writer that records each call as one line
local function recorder()
  local calls = {}
  local function put(form, ...) calls[#calls + 1] = form:format(...) end
  return { calls = calls,
    begin = function(_, part) put("%s behind %d", part.how, part.step) end,
    step = function(_, _, n) put("%d", n) end,
    note = function(_, line, n) put("%s at %d", line.kind, n) end,
    finish = function(_, line) put("%s", line.kind) end,
    close = function() put "." end }
end

local function report(lines)
  local dir <close> = folder.new()
  dir:write("journal.jsonl", tracked.text(lines))
  local writer = recorder()
  local one = follow.new(dir.path, { writer })
  one:look()
  one:close_part()
  return table.concat(writer.calls, " "), one.parts
end

describe("a journal", function()
  it("starts a new part with each session", function()
    local text, parts = report { { kind = "weights" }, start(0), step(1), step(2),
      { kind = "end", step = 2 }, start(2), step(3) }
    assert.equal("start behind 0 1 2 end . resume behind 2 3 .", text)
    assert.is_true(parts[1].whole)
    assert.same({ 1.75e9, 1.75e9 + 2, "abc123", true, false }, { parts[1].wall, parts[2].wall,
      parts[2].id, parts[1].opens, parts[2].opens })
  end)

  it("starts a part at the older step after a resume from there or a rollback", function()
    local text, parts = report { start(0), step(1), step(2), step(3), start(2), step(3), step(4),
      { kind = "rollback", step = 3, from = 4 }, step(4) }
    assert.equal("start behind 0 1 2 3 . rewind behind 2 3 4 rollback at 3 . rewind behind 3 4 .",
      text)
    assert.is_false(parts[1].whole)
    assert.is_true(parts[2].whole)
  end)

  it("has parts at least a second apart, whatever the clock does", function()
    local _, parts = report { start(0, { wall = 100 }), step(1), { kind = "rollback", step = 0,
      wall = 100.2 }, start(0, { wall = 7 }), start(0, { wall = 1e300 }) }
    assert.same({ 100, 101, 102, 103 }, { parts[1].wall, parts[2].wall, parts[3].wall,
      parts[4].wall })
    assert.equal(100, parts[4].first_wall)
  end)

  it("has each step once in a part, and no part before the first session", function()
    assert.equal("start behind 4 5 . rewind behind 4 5 .", (report { step(5), step(5) }))
    assert.equal("", (report { { kind = "end", step = 1 }, { kind = "note" }, { step = 4 } }))
  end)

  it("marks a part as not whole after an error of a tracker or a late note", function()
    local _, parts = report { start(0), { kind = "tracker", step = 0 }, { kind = "end", step = 0 },
      start(0), { kind = "end", step = 0 }, { kind = "note", text = "x" }, start(0) }
    assert.same({ false, false, true }, { parts[1].whole, parts[2].whole, parts[3].whole })
  end)

  it("is read while it grows, up to the last whole line", function()
    local dir <close> = folder.new()
    local path = dir:write("journal.jsonl", tracked.text { start(0), step(1) })
    local writer = recorder()
    local one = follow.new(dir.path, { writer })
    one:look()
    local file <close> = io.open(path, "a")
    local text = tracked.text { step(2) }
    file:write(text:sub(1, 20)):flush()
    one:look()
    assert.equal("start behind 0 1", table.concat(writer.calls, " "))
    file:write(text:sub(21), "no JSON\n[1\n", tracked.text { step(3) }):flush()
    one:look()
    assert.equal("start behind 0 1 2 3", table.concat(writer.calls, " "))
  end)

  it("counts the steps of all stages in one sequence", function()
    local dir <close> = folder.new()
    dir:write("settings.json", '{"settings":{"stages":[{"name":"a"},{"name":"b"},{"name":"c"}]}}')
    dir:write("stages/a/journal.jsonl", tracked.text { start(0), step(1), step(2),
      { kind = "end", step = 2 } })
    dir:write("stages/b/journal.jsonl", tracked.text { start(0, { run = "other" }), step(1),
      start(0), step(1), { kind = "end", step = 1 } })
    dir:write("stages/c/journal.jsonl", tracked.text { start(1), step(2) })
    local writer = recorder()
    local one = follow.new(dir.path, { writer })
    one:look()
    assert.equal("start behind 0 1 2 end . resume behind 2 3 . rewind behind 2 3 end . "
      .. "resume behind 3 4", table.concat(writer.calls, " "))
    assert.same({ "abc123", true, dir.path .. "/stages/c" }, { one.parts[4].id,
      one.parts[4].opens, one.parts[4].dir })
  end)

  it("replaces a run id that is a path out of the folder", function()
    local _, parts = report { start(0, { run = "../../x" }) }
    assert.equal("unnamed", parts[1].id)
  end)
end)
