--- Run directories and their journal.
-- Covers: core/bind/journal.c core/bind/run.c lua/moonreel/run/init.lua
local run = require "moonreel.run"
local base = require "moonreel.core.base"

describe("run", function()
  local outputs

  before_each(function()
    outputs = os.tmpname()
    os.remove(outputs)
  end)
  after_each(function() os.execute("rm -rf '" .. outputs .. "'") end)

  it("creates numbered directories", function()
    assert.equal(outputs .. "/001-demo", run.create(outputs, "demo"))
    assert.equal(outputs .. "/002-demo", run.create(outputs, "demo"))
    assert.is_true(base.exists(outputs .. "/002-demo/log"))
    local ok, err = pcall(run.create, outputs, "a/b")
    assert.is_false(ok)
    assert.equal("MR_E_USAGE", err.code)
  end)

  it("discards a directory and the folders made for it, but not those of others", function()
    local inner = outputs .. "/a//b/"
    local path, made = run.create(inner, "demo")
    assert.same({ outputs, outputs .. "/a", inner }, made)
    local other, none = run.create(inner, "demo")
    assert.same({}, none)
    run.discard(path, made)
    assert.same({ "002-demo" }, base.list_dir(inner))
    run.discard(other, made)
    assert.is_false(base.exists(outputs))
    assert.is_false((pcall(run.create, inner, "a/b")))
    assert.is_false(base.exists(outputs))
  end)

  it("returns the place of its first launch, from the first line of its journal", function()
    local dir = run.create(outputs, "demo")
    assert.is_nil(run.began_in(dir))
    for directory, known in pairs { ["/home/a"] = "/home/a", [7] = false } do
      base.replace_file(dir .. "/journal.jsonl", "")
      do
        local journal <close> = run.journal(dir)
        journal:append { kind = "begin", directory = directory }
        journal:append { kind = "begin", directory = "/home/b" }
      end
      assert.equal(known or nil, run.began_in(dir))
    end
  end)

  it("has stages in the order of the recipe", function()
    local outer = run.create(outputs, "row", true)
    -- a run that is killed at this point has no stages
    assert.same({}, run.stages(outer))
    assert.is_nil((require("moonreel.ckpt").resolve("latest", outputs, "row")))
    base.replace_file(outer .. "/settings.json",
      '{"settings": {"stages": [{"name": "z"}, {"name": "m"}, {"name": "a"}]}}')
    for _, name in ipairs { "a", "z" } do
      assert.equal(outer .. "/stages/" .. name, run.stage(outer, name))
    end
    assert.same({ { name = "z", path = outer .. "/stages/z" },
      { name = "a", path = outer .. "/stages/a" } }, run.stages(outer))
    assert.same({ outer, "z" }, { run.outer(outer .. "/stages/z") })
    assert.is_nil(run.outer(outer))
    assert.is_nil(run.stages(outer .. "/stages/z"))
    -- a folder that only has the name of a stage
    assert.is_nil(run.outer(run.create(outputs .. "/stages", "x")))
  end)

  it("keeps a journal that returns what was appended", function()
    local dir = run.create(outputs, "demo")
    local journal = run.journal(dir)
    journal:append { kind = "step", step = 1, loss = 0.1, bytes = 2 ^ 53 | 1 }
    journal:append { kind = "save", step = 1, ids = { 1, 2, 3 } }
    assert.same({ 0, "", 0 }, { journal:waiting() })
    journal:sync()
    journal:close()
    journal:close()
    local entries = {}
    for entry in run.entries(dir) do
      entries[#entries + 1] = entry
    end
    assert.equal(2, #entries)
    assert.equal(0.1, entries[1].loss)
    assert.equal("integer", math.type(entries[1].bytes))
    assert.equal(3, #entries[2].ids)
  end)

  it("skips a cut last line and damaged lines", function()
    local dir = run.create(outputs, "demo")
    local f = assert(io.open(dir .. "/journal.jsonl", "w"))
    f:write('{"a":1}\n', "garbage\n", '{"a":2}\n', '{"a":')
    f:close()
    local seen = {}
    for entry in run.entries(dir .. "/journal.jsonl") do
      seen[#seen + 1] = entry.a
    end
    assert.same({ 1, 2 }, seen)
    local journal <close> = run.journal(dir)
    journal:append { a = 3 }
    seen = {}
    for entry in run.entries(dir) do
      seen[#seen + 1] = entry.a
    end
    assert.same({ 1, 2, 3 }, seen)
  end)

  it("refuses to append what JSON cannot express, and appends none of it", function()
    local dir = run.create(outputs, "demo")
    local journal <close> = run.journal(dir)
    local ok, err = pcall(journal.append, journal, { loss = 0 / 0 })
    assert.is_false(ok)
    assert.matches("value%.loss: NaN", tostring(err))
    assert.is_nil(run.entries(dir)())
  end)

  it("locks a directory and reports the owner", function()
    local dir = run.create(outputs, "demo")
    assert.is_false(run.owner(dir).owned)
    local lock = run.lock(dir)
    assert.equal(1, lock:fence())
    assert.equal(dir, lock:dir())
    assert.equal(16, #lock:id())
    lock:check()
    local owner = run.owner(dir)
    assert.is_true(owner.owned)
    assert.is_false(owner.dead)
    assert.equal(base.pid(), owner.pid)
    local ok, err = pcall(run.lock, dir)
    assert.is_false(ok)
    assert.equal("MR_E_LOCK", err.code)
    lock:close()
    lock:close()
    assert.is_false(run.owner(dir).owned)
  end)
end)
