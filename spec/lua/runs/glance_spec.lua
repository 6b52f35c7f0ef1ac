--- The line of a run in a list.
-- Covers: lua/moonreel/runs/notes.lua
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local glance = require "moonreel.runs.glance"
local notes = require "moonreel.runs.notes"
local run = require "moonreel.run"
local made_run = require "spec.support.made_run"

local start, step = made_run.start, made_run.step

describe("the summary of a run", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  local function look(lines, fields)
    local path = made_run.make(dir, "001-a", lines, fields)
    return glance.of { name = "001-a", dir = path }, path
  end

  it("has step, total, loss, age and recipe", function()
    local row = look({ start(0), step(1, 5), step(2, 4.5), { kind = "save", step = 1, wall = 104 },
      { kind = "end", step = 2, loss = 4.5, wall = 105 } })
    assert.same({ 2, 40, 4.5, "finished", 105, 1 }, { row.step, row.total, row.loss, row.state,
      row.wall, row.launches })
    assert.matches("main%.lua$", row.recipe)
    assert.is_true(math.abs(row.age_s - (base.wall_s() - 105)) < 100)
  end)

  it("follows a rollback or a new launch", function()
    local row = look { start(0), step(1, 5), step(2, 4), { kind = "rollback", step = 1, wall = 9 } }
    assert.same({ 1, 4, "failed" }, { row.step, row.loss, row.state })
    row = look { start(0), step(1, 5), step(2, 4), start(1) }
    assert.equal(1, row.step)
  end)

  it("has the total of the newest launch, also long after its line", function()
    local lines = { start(0, { branch = 1 }), step(1, 5), start(1, { branch = 2, total = 900 }) }
    for i = 2, 3000 do
      lines[#lines + 1] = step(i, 1)
    end
    local row, path = look(lines)
    assert.same({ 3000, 40 }, { row.step, row.total })
    run.lock(path):close()
    assert.equal(900, glance.of({ name = "a", dir = path }).total)
    table.insert(lines, 2000, { kind = "save", step = 1990, total = 1000 })
    row = look(lines)
    assert.equal(1000, row.total)
  end)

  it("says running, stopped, failed, dead or finished", function()
    local row, path = look { start(0), step(1, 5), { kind = "stop", step = 1, signal = 2 } }
    assert.equal("stopped", row.state)
    local lock = run.lock(path)
    assert.equal("running", glance.of({ name = "a", dir = path }).state)
    assert.is_true(glance.running(path))
    lock:close()
    assert.is_false(glance.running(path))
    assert.equal("failed", (look { start(0), step(1, 5), { kind = "error", step = 1 } }).state)
    assert.equal("finished", (look { start(0), { kind = "end", step = 9 },
      { kind = "later", wall = 1 } }).state)
    -- a writer whose process is gone
    base.replace_file(path .. "/lock", base.read_file(path .. "/lock"):gsub("null", function()
      local me = run.lock(path)
      local text = base.read_file(path .. "/lock"):match('"owner": (%b{})')
      me:close()
      return (text:gsub('"pid": %d+', '"pid": 4194300'))
    end))
    assert.equal("dead", glance.of({ name = "a", dir = path }).state)
  end)

  it("exists before the journal, and with foreign or torn files", function()
    local row, path = look(nil)
    assert.same({ nil, nil, "failed" }, { row.step, row.loss, row.state })
    base.replace_file(path .. "/journal.jsonl", "no journal\n\0\1\n{\"kind\":7,\"step\":\"x\"}\n")
    assert.is_nil(glance.of({ name = "a", dir = path }).step)
    base.replace_file(path .. "/journal.jsonl", made_run.text { start(0), step(1, 5) }
      .. '{"kind":"step","step":2,"lo')
    assert.equal(1, glance.of({ name = "a", dir = path }).step)
    base.replace_file(path .. "/settings.json", "{ torn")
    base.replace_file(path .. "/lock", "torn")
    row = glance.of({ name = "a", dir = path })
    assert.same({ 1, "dead" }, { row.step, row.state })
    assert.is_nil(row.recipe)
  end)

  it("has values of settings that contain braces", function()
    local _, path = look({}, 'sampling = { prompts = { "a } brace" } }, optim = { lr = 0.25 }')
    assert.equal(0.25, glance.settings(path).optim.lr)
    assert.is_nil(glance.settings(dir.path))
  end)

  it("is that of its newest stage", function()
    dir:write("s/settings.json", '{"settings":{"stages":[{"name":"a"},{"name":"b"}]}}')
    dir:write("s/stages/a/journal.jsonl", made_run.text { start(0), { kind = "end", step = 4 } })
    run.lock(dir.path .. "/s"):close()
    local row = glance.of { name = "s", dir = dir.path .. "/s" }
    assert.same({ "a", 4, "stopped" }, { row.stage, row.step, row.state })
    dir:write("s/stages/b/journal.jsonl", made_run.text { start(4), { kind = "end", step = 9 } })
    row = glance.of { name = "s", dir = dir.path .. "/s" }
    assert.same({ "b", 9, "finished" }, { row.stage, row.step, row.state })
  end)

  it("has notes, which are added while the run writes", function()
    local _, path = look { start(0), step(1, 5) }
    local lock <close> = run.lock(path)
    local journal <close> = run.journal(path)
    notes.add(path, "first\nof two lines", 1)
    notes.add(path, "second")
    journal:append(step(2, 4))
    local row = glance.of { name = "a", dir = path }
    assert.same({ 2, "second", 2, "running" }, { row.notes, row.note, row.step, row.state })
    assert.is_true(lock:id() ~= "")
    for text, says in pairs { [""] = "the text is empty", ["\255"] = "not UTF%-8",
      [("x"):rep(70000)] = "has 70000 bytes; expected at most 65536" } do
      local _, problem = pcall(notes.add, path, text)
      assert.matches("note: .*" .. says, tostring(problem))
      assert.equal(2, problem.exit)
    end
  end)
end)
