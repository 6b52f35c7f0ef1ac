--- Which folders are runs, and which run an argument names.
local base = require "moonreel.core.base"
local find = require "moonreel.runs.find"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

describe("runs are found", function()
  local dir, before
  setup(function()
    dir = folder.new()
    dir:write("outputs/001-demo/settings.json", "{}")
    dir:write("outputs/002-other/journal.jsonl", "")
    dir:write("outputs/003-other/lock", "")
    dir:write("outputs/notes.txt", "")
    dir:write("outputs/empty/x", "")
    before = process.real_path(".")
    process.enter(dir.path)
  end)
  teardown(function()
    process.enter(before)
    dir:remove()
  end)

  it("in a folder, by any of their files, also before the first step", function()
    local names = {}
    for i, one in ipairs(find.all("outputs")) do
      names[i] = one.name
      assert.equal("outputs/" .. one.name, one.dir)
    end
    assert.same({ "001-demo", "002-other", "003-other" }, names)
  end)

  it("when the folder is the run itself", function()
    assert.same({ { name = "001-demo", dir = "outputs/001-demo/" } },
      find.all("outputs/001-demo/"))
  end)

  it("by path, name, number and the rest of the name", function()
    for _, word in ipairs { "outputs/001-demo", "outputs/001-demo//", "001-demo", "001", "demo" } do
      assert.equal("outputs/001-demo", find.one(word, "log"))
    end
  end)

  it("for commands that take recipes, too, unless a recipe has the name", function()
    for _, word in ipairs { "outputs/001-demo", "001-demo", "001", "1", "demo" } do
      assert.equal("outputs/001-demo", find.named(word))
    end
    dir:write("demo.lua", "return recipe {}")
    assert.is_nil(find.named "demo")
    assert.equal("outputs/001-demo", find.named "001-demo")
    assert.is_nil(find.named "004")
    local _, problem = pcall(find.named, "other")
    assert.matches("'other' is the name of several runs: 002%-other, 003%-other; try: one",
      problem.message)
  end)

  it("or an error lists what to try", function()
    local _, problem = pcall(find.one, "other", "log")
    assert.matches("log: 'other' is the name of several runs: 002%-other, 003%-other; try: one",
      tostring(problem))
    _, problem = pcall(find.one, "001-dmo", "log")
    assert.matches("log: '001%-dmo' is not a run directory: it has no journal.jsonl, lock, "
      .. "settings.json, did you mean '001%-demo'%?; try: moonreel runs", tostring(problem))
    assert.equal(2, problem.exit)
    _, problem = pcall(find.all, "nowhere")
    assert.matches("nowhere: no such folder; try: moonreel runs FOLDER", tostring(problem))
  end)

  it("with stages as parts, and as one when the settings are damaged", function()
    assert.same({ { dir = "outputs/001-demo" } }, find.parts("outputs/001-demo"))
    dir:write("staged/settings.json", '{"settings":{"stages":[{"name":"b"},{"name":"a"}]}}')
    base.make_dir("staged/stages/a")
    assert.same({ { dir = "staged/stages/a", stage = "a" } }, find.parts("staged"))
    base.make_dir("staged/stages/b")
    assert.equal("b", find.parts("staged")[1].stage)
    dir:write("staged/settings.json", "{")
    assert.same({ { dir = "staged" } }, find.parts("staged"))
  end)
end)
