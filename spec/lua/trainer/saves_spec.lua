--- Checkpoints of a run, also on a disk that refuses them.
-- Covers: lua/moonreel/trainer/saves.lua lua/moonreel/trainer/writer.lua
local run = require "moonreel.run"
local small_run = require "spec.support.small_run"

local runs = small_run.new()
local bake, train, entries = runs.bake, small_run.train, small_run.entries

describe("trainer.saves", function()
  teardown(function() runs:remove() end)

  it("allocates the writer's buffers before the first step if it saves between steps",
    function()
    local probe <close> = require("moonreel.ckpt").saver(run.create(runs.out, "probe"))
    local Saver, prepared = getmetatable(probe), nil
    local prepare = Saver.prepare
    function Saver.prepare(self, rows, buffers)
      prepared = prepared + buffers
      return prepare(self, rows, buffers)
    end
    for _, case in ipairs{{0, 0, 0}, {0, 10, 1}, {2, 0, 2}, {2, 10, 2}} do
      local every, minutes, wanted = table.unpack(case)
      local at_first_step
      prepared = 0
      local ok, code = train(bake("steps=4", "name=buffers", "ckpt_every=" .. every,
        "ckpt_minutes=" .. minutes), function()
        at_first_step = prepared
      end)
      assert.is_true(ok, tostring(code))
      assert.equal(wanted, at_first_step)
    end
    Saver.prepare = prepare
  end)

  it("continues after a failed save, waits after three in a row, and exits with 8", function()
    local ok, err, lines, dir = train(bake("steps=400", "ckpt_every=2", "ckpt_deadline=2",
      "name=full"), function(r)
      -- a file replaces the directory, so no checkpoint can be begun
      os.execute(("rm -r '%s/ckpt' && touch '%s/ckpt'"):format(r.dir, r.dir))
    end)
    assert.is_false(ok)
    assert.equal("MR_E_CKPT", err.code)
    assert.equal(8, err.exit)
    local taken = #entries(dir, "step")
    assert.is_true(taken >= 6 and taken < 400, taken)
    assert.matches("save of step 2.*is not saved; the save is tried again in 1 s",
      table.concat(lines, "\n"))
  end)

  it("saves the last step again when its save was skipped", function()
    local skipped
    local ok, code, _, dir = train(bake("steps=4", "ckpt_every=2", "name=skipped"), function(r)
      local save = r.saver.save
      r.saver.save = function(self, request)
        if request.step == 4 and not skipped then
          skipped = true
          return false
        end
        return save(self, request)
      end
    end)
    assert.is_true(ok, tostring(code))
    assert.is_true(skipped)
    assert.same({4, 2}, require("moonreel.ckpt").steps(dir))
  end)

  -- a file replaces the directory, so no checkpoint can be begun; returns how to undo it
  local function break_saves(r)
    os.execute(("mv '%s/ckpt' '%s/away' && touch '%s/ckpt'"):format(r.dir, r.dir, r.dir))
    return function()
      os.execute(("rm '%s/ckpt' && mv '%s/away' '%s/ckpt'"):format(r.dir, r.dir, r.dir))
    end
  end

  it("ends with exit 8 when the last step cannot be committed", function()
    local ok, err, lines, dir = train(bake("steps=2", "ckpt_deadline=1", "name=last"),
      break_saves)
    assert.is_false(ok)
    assert.equal("MR_E_CKPT", err.code)
    assert.equal(8, err.exit)
    assert.matches("no checkpoint of step 2 was committed in 1 s %(ckpt_deadline%); the last save: "
      .. ".*/ckpt", err.message)
    assert.matches("save of step 2: fail: ", table.concat(lines, "\n"))
    assert.same({}, entries(dir, "end"))
  end)

  it("retries the save of the last step, and exits with 0 when that succeeds", function()
    local ok, code, lines, dir = train(bake("steps=2", "name=again"), function(r)
      local mend, wait = break_saves(r), r.saver.wait
      r.saver.wait = function(self)
        local good, problem = pcall(wait, self)
        if mend then
          mend()
          mend = nil
        end
        return good or error(problem, 0)
      end
    end)
    assert.is_true(ok, tostring(code))
    assert.equal(0, code)
    assert.matches("save of step 2: fail: ", table.concat(lines, "\n"))
    assert.same({2}, require("moonreel.ckpt").steps(dir))
  end)

  it("waits for a disk that is full for longer than three saves, and loses no step", function()
    local saves, failed = require "moonreel.trainer.saves", 0
    local pause_s = saves.pause_s
    saves.pause_s = 0.01
    local ok, code, _, dir = train(bake("steps=12", "ckpt_every=2", "name=waits"), function(r)
      local mend, tell = break_saves(r), r.progress.say
      r.progress.say = function(self, line)
        failed = failed + (line:find(": fail: ", 1, true) and 1 or 0)
        if failed == 5 and mend then
          mend()
          mend = nil
        end
        tell(self, line)
      end
    end)
    saves.pause_s = pause_s
    assert.is_true(ok, tostring(code))
    assert.is_true(failed >= 5)
    assert.equal(12, #entries(dir, "step"))
    assert.equal(12, require("moonreel.ckpt").steps(dir)[1])
  end)

  it("ends with exit 8 when the disk does not answer", function()
    local journal
    local ok, err = train(bake("steps=2", "name=dead"), function(r)
      r.saver:close()
      r.saver = r:keep(require("moonreel.ckpt").saver(r.dir, {lock = r.lock, deadline_s = 0.1}))
      -- the writer opens the journal to sync it, and the opening of a pipe without a reader blocks
      journal = r.dir .. "/journal.jsonl"
      os.execute(("mv '%s' '%s.away' && mkfifo '%s'"):format(journal, journal, journal))
    end)
    os.execute((": > '%s'"):format(journal))
    assert.is_false(ok)
    assert.equal("MR_E_CKPT", err.code)
    assert.matches("the save of step 2 has not ended after %S+ s", err.message)
  end)

  it("keeps the number of checkpoints in keep_n_latest: two with 1, all with 0", function()
    for n, steps in pairs{[3] = {5, 4, 3}, [1] = {5, 4}, [0] = {5, 4, 3, 2, 1}} do
      local ok, code, _, dir = train(bake("steps=5", "ckpt_every=1", "name=keep",
        "keep_n_latest=" .. n), function(r)
        -- each save waits for the one before it; on a busy disk a save would be skipped
        local save = r.saver.save
        r.saver.save = function(self, what)
          what.wait = true
          return save(self, what)
        end
      end)
      assert.is_true(ok, tostring(code))
      assert.same(steps, require("moonreel.ckpt").steps(dir))
    end
  end)
end)
