--- Signals to a run during its steps and before the first.
local base = require "moonreel.core.base"
local signalled = require "spec.support.signalled"
local small_run = require "spec.support.small_run"

local runs = small_run.new()
local entries = small_run.entries

describe("trainer", function()
  teardown(function() runs:remove() end)

  it("commits a checkpoint on SIGTERM and SIGINT, and exits with 143 and 130", function()
    for signal, code in pairs{TERM = 143, INT = 130} do
      local r = signalled(signal, [[
        local loop = require "moonreel.trainer.loop"
        local step = loop.step
        function loop.step(r)
          local more = step(r)
          if r.step == 3 then send() end
          return more
        end]], {"train", "tiny/demo", table.unpack(runs.words("name=" .. signal))})
      assert.equal(code, r.exit, r.output)
      local dir = r.output:match("run (%S+):")
      assert.equal(3, entries(dir, "stop")[1].step)
      assert.same({3}, require("moonreel.ckpt").steps(dir))
      assert.is_true(base.exists(dir .. "/ckpt/step-000000000003/MANIFEST.json"))
    end
  end)

  it("exits at once on a signal before its first step, without a directory", function()
    -- a model that is never fully declared; a callback that catches errors; a finished run
    for i, code in ipairs{"send() while true do end",
        "pcall(function() send() while true do end end)", "models(r) send()"} do
      local r = signalled(i == 2 and "INT" or "TERM", ([[
        local steps = require("moonreel.trainer").steps
        for _, one in ipairs(steps) do
          if one[1] == "declare the models" then
            local models = one[2]
            one[2] = function(r) %s end
          end
        end]]):format(code), {"train", "tiny/demo",
        table.unpack(runs.words("outputs=" .. runs.out .. "/early"))})
      assert.equal(i == 2 and 130 or 143, r.exit, r.output)
      assert.matches("moonreel: stopped by a signal before the first step; nothing was saved\n$",
        r.output)
      assert.is_false(base.exists(runs.out .. "/early"))
    end
  end)
end)
