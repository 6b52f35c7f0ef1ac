--- Runs next to each other.
local compare = require "moonreel.runs.compare"
local folder = require "spec.support.folder"
local made_run = require "spec.support.made_run"

local start, step = made_run.start, made_run.step

describe("runs next to each other", function()
  local dir, a, b
  setup(function()
    dir = folder.new()
    a = made_run.make(dir, "a", { start(0), step(1, 5), step(2, 9), start(1), step(2, 3) },
      "optim = { lr = 0.25 }, seed = 3")
    b = made_run.make(dir, "b", { start(0), step(1, 4), { kind = "skip", step = 2 }, step(3, 2) },
      "optim = { lr = 0.5 }, seed = 3, name = 'b'")
  end)
  teardown(function() dir:remove() end)

  it("have a table of the settings in which they differ, except names", function()
    assert.same({ { field = "optim.lr", ["1"] = "0.25", ["2"] = "0.5" } },
      compare.settings { a, b })
    assert.same({}, compare.settings { a, a })
    assert.equal(1, #compare.settings { a, b, a })
    local _, problem = pcall(compare.settings, { a, dir.path .. "/c" })
    assert.matches("c/settings.json: there is no such file", tostring(problem))
  end)

  it("have the losses of the steps that count", function()
    assert.same({ { 1, 5 }, { 2, 3 } }, compare.curve(a))
    assert.same({ { 1, 4 }, { 3, 2 } }, compare.curve(b))
    assert.same({}, compare.curve(dir.path))
  end)

  it("have their curves in one chart", function()
    local text = compare.chart { { name = "one", points = compare.curve(a) },
      { name = "two", points = compare.curve(b) } }
    assert.matches("^loss by step\n5 ▏aa\n", text)
    assert.matches("a  one  3%.0000 at 2\nb  two  2%.0000 at 3\n$", text)
    local many = {}
    for i = 1, 9 do
      many[i] = { name = "x", points = {} }
    end
    local _, problem = pcall(compare.chart, many)
    assert.matches("runs: %-%-compare: got 9 runs; expected at most 8", tostring(problem))
  end)
end)
