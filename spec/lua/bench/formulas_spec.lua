--- Closed formulas agree with the graphs that train; a wrong formula fails.
-- Covers: lua/moonreel/bench/formulas.lua lua/moonreel/bench/mmdit.lua
local closed = require "moonreel.plan.closed"
local formulas = require "moonreel.bench.formulas"

describe("formulas of a training step", function()
  local as_they_are
  lazy_setup(function() as_they_are = formulas.rows() end)

  it("agree with the graph within 10 %: operations, bytes, parameters", function()
    local kinds = {}
    for _, row in ipairs(as_they_are) do
      assert.is_true(row.ok, ("%s, %s: %g not in %g..%g"):format(row.run, row.what, row.planned,
        row.low, row.high))
      local kind = row.what:match "^s of" or row.what:match "^%S+ [^,]*"
      kinds[kind] = (kinds[kind] or 0) + 1
    end
    assert.same({ ["TFLOP of a step"] = 5, ["GB that recomputed blocks keep"] = 5,
      ["GB in all"] = 5, ["G parameters"] = 2, ["PFLOP of a step"] = 2,
      ["TFLOP of a caption of 300 tokens"] = 1, ["kB of a token"] = 2, ["s of"] = 5,
      ["s that the slowest of 224 ranks and gathers add"] = 1, ["TFLOP of a sample"] = 1,
      ["minutes of 16 GPUs to the target"] = 1 }, kinds)
  end)

  it("divide the published step into its parts", function()
    local seconds = {}
    for _, row in ipairs(as_they_are) do
      if row.run:find "a step of 129 frames" then
        seconds[#seconds + 1] = row.planned
      end
    end
    local products, attention, memory, encode, others, step = table.unpack(seconds)
    -- the parts add up to the step, except for work that is hidden behind other work
    assert.near(step, products + attention + memory + encode + others, 0.02 * step)
  end)

  it("disagree about seconds on a machine with half the rates", function()
    local mesh = require "moonreel.plan.mesh"
    local parse = mesh.parse
    finally(function() mesh.parse = parse end)
    mesh.parse = function(...)
      local m = parse(...)
      local rate = m.machine.rate
      m.machine.rate = setmetatable({ product = rate.product / 2 }, { __index = rate })
      return m
    end
    local closed_seconds = closed.mmdit_seconds
    finally(function()
      mesh.parse, closed.mmdit_seconds = parse, closed_seconds
    end)
    closed.mmdit_seconds = function(s)
      return closed_seconds(s, require("moonreel.plan.machine").open "H200")
    end
    local missed = {}
    for _, row in ipairs(formulas.rows()) do
      missed[#missed + 1] = not row.ok and row.what or nil
    end
    assert.same({ "s of its products", "s of 10.2 that were published",
      "minutes of 16 GPUs to the target" }, missed)
  end)

  it("disagree when a formula counts too much, or bytes that fused kernels drop", function()
    local operations, kept, fused = closed.stdit3_operations, closed.kept, closed.fused
    finally(function()
      closed.stdit3_operations, closed.kept, closed.fused = operations, kept, fused
    end)
    closed.stdit3_operations = function(s) return 1.2 * operations(s) end
    closed.kept = function(width, eager) return kept(width, eager, 0) end
    closed.fused = function() return 0 end
    local missed = {}
    for _, row in ipairs(formulas.rows()) do
      local kind = row.what:match "^%S+"
      missed[kind] = (missed[kind] or 0) + (row.ok and 0 or 1)
    end
    assert.same({ TFLOP = 5, kB = 2, GB = 3, G = 0, PFLOP = 0, s = 0, minutes = 0 }, missed)
  end)
end)
