--- The order of work in a step, its bits, and its lines in the log.
-- Covers: lua/moonreel/trainer/loop.lua lua/moonreel/trainer/micros.lua
local demo_data = require "spec.support.demo_data"
local small_run = require "spec.support.small_run"

local runs = small_run.new()
local bake, train, entries = runs.bake, small_run.train, small_run.entries

describe("trainer.loop", function()
  teardown(function() runs:remove() end)

  it("changes the shift of times with its steps, also after a resume", function()
    local words = { "scheduler.train_shift_from=8", "scheduler.train_shift=1",
      "scheduler.train_shift_steps=3", "log_every=100" }
    local function report(name, ...)
      local ok, result, _, dir = train(bake("name=" .. name, table.unpack({...}, 1)), nil)
      assert.is_true(ok, tostring(result))
      local list = {}
      for i, line in ipairs(entries(dir, "step")) do
        list[i] = {line.scalars.train_shift, line.t, line.loss}
      end
      return list, dir
    end
    local whole = report("moves", "steps=5", table.unpack(words))
    for i, ratio in ipairs{8, 4, 2, 1, 1} do
      assert.near(ratio, whole[i][1], 1e-12)
    end
    local _, dir = report("resumed", "steps=2", table.unpack(words))
    assert.same(whole, report("resumed", "steps=5", "load=" .. dir, table.unpack(words)))
  end)

  it("reports unreadable samples once, and their number at its end", function()
    local ok, code, lines = train(bake("steps=4", "name=unread"), function(r)
      local stats = r.loader.stats
      r.loader.stats = function(self)
        local counted = stats(self)
        counted.failed = ({2, 2, 5, 6})[r.step + 1] or 6
        return counted
      end
    end)
    assert.is_true(ok, tostring(code))
    local said = {}
    for _, line in ipairs(lines) do
      said[#said + 1] = line:find("could not be read", 1, true) and line or nil
    end
    assert.equal(2, #said)
    assert.matches("^2 samples could not be read and count for nothing in the loss; see "
      .. ".*quarantine.jsonl; the total is printed at the end$", said[1])
    assert.equal("6 samples could not be read since the run began", said[2])
  end)

  it("waits once for each optimizer step, with the same bits on slow devices", function()
    for threads = 1, 2 do
      local dirs = {}
      for i, device in ipairs{"cpu", "shadow"} do
        local waits, losses, keys, mixed = {}, {}, {}, 0
        local ok, code, _, dir = train(bake("steps=3", "accumulate=3", "seed=12",
          "threads=" .. threads, "device=" .. device, "name=" .. device .. threads), function(r)
          local get, tell = r.programs.get, r.progress.step
          r.programs.get = function(...)
            local micro = get(...)
            return setmetatable({start = function(_, input)
              losses[#losses + 1], keys[#keys + 1] = micro:start(input), micro.key
              return losses[#losses]
            end}, {__index = micro})
          end
          r.progress.step = function(self, line)
            waits[#waits + 1] = r.exec:waits()
            assert.equal(3 * #waits, #losses)
            local sum = 0
            for k = #losses - 2, #losses do
              sum = sum + losses[k]:get():item()
            end
            assert.equal(sum / line.weight, line.loss)
            -- a step of several buckets has no field that belongs to one bucket
            local a, b, c = table.unpack(keys, #keys - 2)
            assert.equal(a == b and b == c, line.even)
            mixed = mixed + (line.even and 0 or 1)
            tell(self, line)
          end
        end)
        assert.is_true(ok, tostring(code))
        assert.equal(3, #waits)
        assert.is_true(mixed > 0)
        for k = 2, 3 do
          assert.equal(0, waits[k].all - waits[k - 1].all)
          assert.equal(1, waits[k].results - waits[k - 1].results)
        end
        dirs[i] = dir
      end
      assert.matches("equal: %d+ tensors, bit for bit",
        demo_data.moonreel("ckpt", "diff", table.unpack(dirs)))
    end
  end)

  it("sends the first batch of the next step before it waits for the end of this one", function()
    for _, device in ipairs{"cpu", "shadow"} do
      local order = {}
      local ok, code = train(bake("steps=3", "accumulate=2", "threads=1", "device=" .. device,
        "name=ahead-" .. device), function(r)
        local prepare, start = r.feed.prepare, r.update.start
        r.feed.prepare = function(...)
          order[#order + 1] = "batch"
          return prepare(...)
        end
        r.update.start = function(...)
          local wait = start(...)
          order[#order + 1] = "update"
          return function()
            order[#order + 1] = "wait"
            return wait()
          end
        end
      end)
      assert.is_true(ok, tostring(code))
      assert.equal("batch batch update batch wait batch update batch wait batch update wait",
        table.concat(order, " "))
    end
  end)

  it("has the same checkpoint when the optimizer keeps its state in host memory", function()
    local dirs = {}
    for i, how in ipairs{{"cpu", "false"}, {"cpu", "true"}, {"shadow", "true"}} do
      local ok, code, _, dir = train(bake("steps=2", "threads=1", "device=" .. how[1],
        "optim.offload=" .. how[2], "name=offload" .. i), function(r)
        for _, row in ipairs(r.exec:regions()) do
          assert.equal(how[2] == "true" and row.prefix == "adam_m." and "pinned" or "device",
            row.prefix == "adam_m." and row.space or "device")
        end
      end)
      assert.is_true(ok, tostring(code))
      dirs[i] = dir
    end
    for i = 2, 3 do
      assert.matches("equal: %d+ tensors, bit for bit",
        demo_data.moonreel("ckpt", "diff", dirs[1], dirs[i]))
    end
  end)
end)
