--- Numbers that functions of the user compute.
-- Covers: lua/moonreel/watch/metric.lua
local T = require "moonreel.core.tensor"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local metric = require "moonreel.watch.metric"

describe("watch.metric", function()
  local dir = folder.new()
  teardown(function() dir:remove() end)
  local frames = T.from({ 2, 3, 1, 1 }, { 1, 2, 3, 4, 5, 6 }, "u8")
  local function program(path, names) return loadfile(path, "t", names) end
  local function load(text) return metric.load(dir:write("m.lua", text), program) end

  it("returns no number, one number, or several by name", function()
    local list = load [[
      watch.metric(function(frames, prompt) return frames.shape[1] + #prompt end)
      watch.metric("two", function() return { a = 1, b = 2.5 } end)
      watch.metric("none", function() return nil end)]]
    local rows, why = metric.measure(list, frames, "abc")
    assert.same({ { "metric", 5 }, { "a", 1 }, { "b", 2.5 } }, rows)
    assert.is_nil(why)
    assert.same({ metric = 5, a = 2 }, metric.means { { "metric", 5 }, { "a", 1 }, { "a", 3 } })
  end)

  it("calls the other functions when one raises or returns another type", function()
    local list = load [[
      watch.metric("bad", function() error("no shape") end)
      watch.metric("good", function() return 1 end)]]
    local rows, why = metric.measure(list, frames, "x")
    assert.same({ { "good", 1 } }, rows)
    assert.matches("m.lua:1: no shape", why)
    assert.matches("'t' returned boolean; expected a number",
      select(2, metric.measure(load 'watch.metric("t", function() return true end)', frames, "")))
    assert.matches("returned 1 = number; expected names",
      select(2, metric.measure(load 'watch.metric(function() return { 3 } end)', frames, "")))
    for value, text in pairs { ["0 / 0"] = "metric = %-?nan; expected a finite",
        ["{ a = math.huge }"] = "a = inf; expected a finite",
        ['{ ["a\\n"] = 1 }'] = "a\\x0a = number; expected names",
        ['{ [""] = 1 }'] = " = number" } do
      rows, why = metric.measure(load(('watch.metric(function() return %s end)'):format(value)),
        frames, "")
      assert.same({}, rows)
      assert.matches("'metric' returned " .. text, why)
    end
    -- the sum of these is infinite
    assert.near(1, metric.means { { "a", 1.5e308 }, { "a", 1.5e308 } }.a / 1.5e308, 1e-9)
  end)

  it("refuses files that define no metric", function()
    fails("MR_E_USAGE", "m.lua: it does not call watch.metric", load, "return 1")
    fails("MR_E_USAGE", "m.lua:1: ", load, "watch.metric(")
    fails("MR_E_USAGE", "expected a function", load, "watch.metric('x', 3)")
    fails("MR_E_USAGE", "nowhere.lua", metric.load, dir.path .. "/nowhere.lua",
      program)
  end)
end)
