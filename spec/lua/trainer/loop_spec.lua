-- What the loop does when something goes wrong: bad numbers, a disk that refuses, a signal.
-- Covers: lua/moonreel/trainer/init.lua lua/moonreel/trainer/progress.lua
-- Covers: lua/moonreel/trainer/check.lua lua/moonreel/trainer/origin.lua
-- Covers: lua/moonreel/trainer/directory.lua lua/moonreel/trainer/setup.lua
-- Covers: lua/moonreel/trainer/saves.lua lua/moonreel/trainer/micros.lua
-- Covers: lua/moonreel/trainer/predict.lua
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local run = require "moonreel.run"
local settings = require "moonreel.settings"
local signalled = dofile "spec/support/signalled.lua"
local trainer = require "moonreel.trainer"

local out = demo_data.scratch()

local function bake(...)
  return settings.bake("tiny/demo",
    {"dataset.data_path=" .. demo_data.path(), "outputs=" .. out, "threads=1", "num_workers=1",
    "warmup_steps=2",
    "model.depth=1", "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32", ...})
end

-- train with a function put before the last step; returns ok, result, lines, run directory
local function train(s, before)
  local lines, dir = {}, nil
  table.insert(trainer.steps, #trainer.steps, {"spec", function(r)
    dir = r.dir
    if before then
      before(r)
    end
  end})
  local ok, result = pcall(trainer.run, s, {write = function(line) lines[#lines + 1] = line end})
  table.remove(trainer.steps, #trainer.steps - 1)
  return ok, result, lines, dir
end

local function entries(dir, kind)
  local list = {}
  for entry in run.entries(dir) do
    if entry.kind == kind then
      list[#list + 1] = entry
    end
  end
  return list
end

local function not_a_number(input)
  input.t[1] = 0 / 0
end

-- spoil the inputs of the steps for which `bad` is true: a time that is not a number, or `how`
local function spoil(bad, how)
  return function(r)
    local prepare = r.feed.prepare
    r.feed.prepare = function(self, batch, shape)
      local input = prepare(self, batch, shape)
      if bad(r.step + 1) then
        (how or not_a_number)(input)
      end
      return input
    end
  end
end

-- a loss beyond f32, whose gradients are well within it
local function too_heavy(input)
  input.weight[1] = 3e38
end

describe("trainer.loop", function()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("lets go of the checkpoint that it goes on from before it takes a step", function()
    local ok, result, _, dir = train(bake("name=goes-on", "steps=1", "ckpt_every=1"))
    assert.is_true(ok, tostring(result))
    local open, step
    ok, result = train(bake("name=goes-on", "steps=1", "load=" .. dir), function(r)
      open, step = pcall(r.source.names, r.source), r.source.manifest.step
    end)
    assert.is_true(ok, tostring(result))
    assert.same({ false, 1 }, { open, step })
  end)

  it("moves the shift of times with its steps, also where it goes on", function()
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

  it("tells once of samples that cannot be read, and at its end how many there were", function()
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

  it("compiles the largest bucket first, others when their batch comes, with equal losses",
    function()
    local small = "bucket_config=recipe.replace{32px: {6: (1, 4), 1: (1, 2)}}"
    local function losses(dir)
      local list = {}
      for _, line in ipairs(entries(dir, "step")) do
        list[#list + 1] = line.loss
      end
      return list
    end
    local ok, code, _, dir = train(bake("steps=12", small, "name=ahead"))
    assert.is_true(ok, tostring(code))
    local all = entries(dir, "start")[1].buckets
    assert.is_true(#all > 1)
    local predict = require "moonreel.trainer.predict"
    local ahead = predict.ahead
    predict.ahead = 0
    local done, result, lines, later = train(bake("steps=12", small, "name=later",
      "programs_bytes=0"))
    predict.ahead = ahead
    assert.is_true(done, tostring(result))
    local first, rest = entries(later, "start")[1].buckets, entries(later, "bucket")
    assert.equal(1, #first)
    local said = table.concat(lines, "\n")
    assert.is_truthy(said:find(("%d more buckets"):format(#all - 1), 1, true), said)
    assert.matches("%d+ of %d+ programs were closed to save memory and then compiled again; "
      .. "try: a larger programs_bytes\n", said)
    for _, row in ipairs(all) do
      assert.is_true(row.peak_bytes <= first[1].peak_bytes)
    end
    assert.is_true(#rest > 0 and rest[1].peak_bytes > 0 and rest[1].samples > 0)
    assert.same(losses(dir), losses(later))
  end)

  it("writes a run directory with recipe, settings, journal and a last checkpoint", function()
    local s = bake("steps=6", "name=plain")
    local ok, code, lines, dir = train(s)
    assert.is_true(ok, tostring(code))
    assert.equal(0, code)
    assert.equal(s.hash, settings.bake(dir .. "/recipe.lua").hash)
    assert.equal(s.hash, settings.load(dir .. "/settings.json").hash)
    assert.same({6}, require("moonreel.ckpt").steps(dir))
    local steps = entries(dir, "step")
    assert.equal(6, #steps)
    for i, e in ipairs(steps) do
      assert.equal(i, e.step)
      for _, field in ipairs{"loss", "grad_norm", "lr", "t", "data_wait_s", "bytes", "time_s"} do
        assert.is_true(type(e[field]) == "number", field)
      end
      assert.matches("^%x+$", e.keys)
    end
    assert.equal(6, entries(dir, "end")[1].step)
    local start = entries(dir, "start")[1]
    assert.equal(6, start.total)
    local index <close> = require("moonreel.data").open(demo_data.path())
    assert.equal(index.meta.fp_order, start.dataset)
    assert.same({}, entries(dir, "error"))
    assert.matches("^bucket 32px 6x32x32: batch 8, 250 samples, peak [%d.]+ MiB, about [%d.]+ ms a "
      .. "step$", lines[2])
  end)

  it("counts what encodes beside the step in what it predicts", function()
    local encoders = require "moonreel.trainer.encoders"
    local new = encoders.new
    function encoders.new()
      return { weights = 1e12, batch = function(_, b) return 100 * b.batch, 2e12, 0 end,
        close = function() end }
    end
    local ok, code, lines, dir = train(bake("steps=1", "name=encoders", "ckpt_every=0"))
    encoders.new = new
    assert.is_true(ok, tostring(code))
    local start = entries(dir, "start")[1]
    local row = start.buckets[1]
    assert.equal(800, row.encode_s)
    assert.is_true(row.seconds > 800 and row.seconds < 801)
    assert.is_true(row.peak_bytes > 3e12 and row.peak_bytes < 3.1e12)
    assert.is_true(row.resident_bytes > row.peak_bytes)
    -- what is said is the whole step
    local said = tonumber(lines[2]:match "about ([%d.]+) ms a step")
    assert.is_true(math.abs(said / 1e3 - row.seconds - start.update_s) < 1e-3, lines[2])
  end)

  it("has the checkpoint writer's buffers before the first step, where it saves on the way",
    function()
    local probe <close> = require("moonreel.ckpt").saver(run.create(out, "probe"))
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

  local spoiled = {["whose gradients are not finite"] = not_a_number,
    ["whose loss alone is not finite"] = too_heavy}
  for what, how in pairs(spoiled) do it("skips a step " .. what .. ", and its parameters stay",
    function()
    local before, after
    local ok, code, _, dir = train(bake("steps=5", "name=skip"), function(r)
      spoil(function(step) return step == 3 end, how)(r)
      local start = r.update.start
      r.update.start = function(self, h)
        local function bytes()
          return r.exec:read("master", "f32", 0, {r.pipe.params:elements(false)}):bytes()
        end
        if r.step == 2 then
          before = bytes()
        end
        local norm = start(self, h)
        if r.step == 2 then
          after = bytes()
        end
        return norm
      end
    end)
    assert.is_true(ok, tostring(code))
    assert.is_true(before == after)
    assert.equal(1, #entries(dir, "skip"))
    assert.equal(3, entries(dir, "skip")[1].step)
    assert.equal(4, #entries(dir, "step"))
  end) end

  it("waits once for each optimizer step, and has the same bits where devices run late", function()
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
            -- a step of several buckets says what none of them takes
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

  it("has the same checkpoint where the optimizer keeps its state in host memory", function()
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

  it("stops with exit 7 after three of them, with a checkpoint", function()
    local ok, err, _, dir = train(bake("steps=20", "name=bad"), spoil(function(step)
      return step > 2
    end))
    assert.is_false(ok)
    assert.equal("MR_E_NONFINITE", err.code)
    local report = entries(dir, "error")
    assert.same({ 1, err.code, err.message }, { #report, report[1].code, report[1].text })
    assert.equal(7, err.exit)
    assert.matches("3 steps in a row without a finite loss", err.message)
    assert.same({5}, require("moonreel.ckpt").steps(dir))
  end)

  it("counts those in a row over a resume", function()
    local _, code, _, dir = train(bake("steps=4", "name=counts"), spoil(function(step)
      return step > 2
    end))
    assert.equal(0, code)
    local _, err, lines = train(bake("steps=20", "name=counts", "load=" .. dir),
      spoil(function(step) return step > 4 end))
    -- the third one is the first of this launch
    assert.matches("step 5: 3 steps in a row without a finite loss",
      table.concat(lines, "\n") .. tostring(err))
    assert.equal(5, entries(dir, "skip")[3].step)
    -- a good step between them ends the row
    _, code, _, dir = train(bake("steps=4", "name=apart"), spoil(function(step)
      return step > 2
    end))
    assert.equal(0, code)
    local ok
    ok, code = train(bake("steps=8", "name=apart", "load=" .. dir), spoil(function(step)
      return step > 5 and step < 8
    end))
    assert.is_true(ok, tostring(code))
    assert.equal(0, code)
  end)

  it("goes back to the last checkpoint, and ends with the bits of a run that never had them",
    function()
    local _, _, _, clean = train(bake("steps=12", "name=clean", "ckpt_every=4"))
    local first = true
    local ok, code, lines, dir = train(bake("steps=12", "name=back", "ckpt_every=4"),
      spoil(function(step)
      local bad = first and step > 5
      first = first and step < 8
      return bad
    end))
    assert.is_true(ok, tostring(code))
    assert.equal(3, #entries(dir, "skip"))
    local back = entries(dir, "rollback")
    assert.equal(1, #back)
    assert.same({4, 8}, {back[1].step, back[1].from})
    assert.matches("step 8: 3 steps in a row without a finite loss and gradient: back to step 4",
      table.concat(lines, "\n"))
    assert.matches("equal: %d+ tensors, bit for bit",
      demo_data.moonreel("ckpt", "diff", clean, dir))
  end)

  it("stops with exit 7 where going back was in vain", function()
    local ok, err, _, dir = train(bake("steps=20", "name=vain", "ckpt_every=4"),
      spoil(function(step)
      return step > 5
    end))
    assert.is_false(ok)
    assert.equal(7, err.exit)
    assert.matches("step 8: 3 steps in a row", err.message)
    assert.equal(1, #entries(dir, "rollback"))
    assert.equal(8, require("moonreel.ckpt").steps(dir)[1])
  end)

  it("goes on when a save fails, waits after three in a row, and stops with exit 8", function()
    local ok, err, lines, dir = train(bake("steps=400", "ckpt_every=2", "ckpt_deadline=2",
      "name=full"), function(r)
      -- a file where the directory was: no checkpoint can be begun
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

  -- a file where the directory was: no checkpoint can be begun; returns how to undo it
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

  it("tries the last step again, and ends well when that helps", function()
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

  it("keeps as many checkpoints as keep_n_latest says, two with 1, all of them with 0", function()
    for n, steps in pairs{[3] = {5, 4, 3}, [1] = {5, 4}, [0] = {5, 4, 3, 2, 1}} do
      local ok, code, _, dir = train(bake("steps=5", "ckpt_every=1", "name=keep",
        "keep_n_latest=" .. n), function(r)
        -- every save waits for the one before it: on a busy disk one would be left out
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

  it("ends with exit 8 when the disk does not answer", function()
    local journal
    local ok, err = train(bake("steps=2", "name=dead"), function(r)
      r.saver:close()
      r.saver = r:keep(require("moonreel.ckpt").saver(r.dir, {lock = r.lock, deadline_s = 0.1}))
      -- the writer opens the journal to sync it, and opening a pipe without a reader waits
      journal = r.dir .. "/journal.jsonl"
      os.execute(("mv '%s' '%s.away' && mkfifo '%s'"):format(journal, journal, journal))
    end)
    os.execute((": > '%s'"):format(journal))
    assert.is_false(ok)
    assert.equal("MR_E_CKPT", err.code)
    assert.matches("the save of step 2 has not ended after %S+ s", err.message)
  end)

  it("commits a checkpoint on SIGTERM and SIGINT, and ends with 143 and 130", function()
    for signal, code in pairs{TERM = 143, INT = 130} do
      local r = signalled(signal, [[
        local loop = require "moonreel.trainer.loop"
        local step = loop.step
        function loop.step(r)
          local more = step(r)
          if r.step == 3 then send() end
          return more
        end]], {"train", "tiny/demo", "dataset.data_path=" .. demo_data.path(),
        "outputs=" .. out, "name=" .. signal, "threads=1", "num_workers=1", "model.depth=1",
        "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
        "model.caption_channels=32"})
      assert.equal(code, r.exit, r.output)
      local dir = r.output:match("run (%S+):")
      assert.equal(3, entries(dir, "stop")[1].step)
      assert.same({3}, require("moonreel.ckpt").steps(dir))
      assert.is_true(base.exists(dir .. "/ckpt/step-000000000003/MANIFEST.json"))
    end
  end)

  it("ends at once on a signal before its first step, and leaves nothing behind", function()
    -- a model that never ends to be declared; whoever swallows an error; what is over already
    for i, code in ipairs{"send() while true do end",
        "pcall(function() send() while true do end end)", "models(r) send()"} do
      local r = signalled(i == 2 and "INT" or "TERM", ([[
        local steps = require("moonreel.trainer").steps
        for _, one in ipairs(steps) do
          if one[1] == "declare the models" then
            local models = one[2]
            one[2] = function(r) %s end
          end
        end]]):format(code), {"train", "tiny/demo", "dataset.data_path="
        .. demo_data.path(), "outputs=" .. out .. "/early", "threads=1", "num_workers=1"})
      assert.equal(i == 2 and 130 or 143, r.exit, r.output)
      assert.matches("moonreel: stopped by a signal before the first step; nothing was saved\n$",
        r.output)
      assert.same({}, base.list_dir(out .. "/early"))
    end
  end)

  it("refuses a second trainer on the same run directory", function()
    local inner
    local ok, code = train(bake("steps=2", "name=twice"), function(r)
      inner = table.pack(pcall(run.lock, r.dir))
    end)
    assert.is_true(ok, tostring(code))
    assert.is_false(inner[1])
    assert.equal("MR_E_LOCK", inner[2].code)
  end)

  it("continues, branches and starts again as the three ways to load say", function()
    local _, _, _, first = train(bake("steps=4", "ckpt_every=2", "name=load"))
    -- the newest step goes on in its directory
    local ok, code, _, dir = train(bake("steps=6", "name=load", "load=" .. first))
    assert.is_true(ok, tostring(code))
    assert.equal(first, dir)
    -- an older step opens a new run that names its parent
    ok, code, _, dir = train(bake("steps=6", "name=load", "load=" .. first .. "@2"))
    assert.is_true(ok, tostring(code))
    assert.are_not.equal(first, dir)
    assert.matches("step%-000000000002$", entries(dir, "start")[1].parent)
    assert.equal(3, entries(dir, "step")[1].step)
    -- everything but the position: steps from 1, the optimizer goes on
    ok, code, _, dir = train(bake("steps=2", "name=load", "load=" .. first,
      "start_from_scratch=true"))
    assert.is_true(ok, tostring(code))
    assert.equal(1, entries(dir, "step")[1].step)
    assert.equal(6, entries(dir, "start")[1].updates)
    -- weights alone: a fresh optimizer
    ok, code, _, dir = train(bake("steps=2", "name=load", "ckpt_path=" .. first))
    assert.is_true(ok, tostring(code))
    assert.equal(0, entries(dir, "start")[1].updates)
  end)

  it("refuses to leave a position behind where nothing is loaded", function()
    for words, text in pairs{["start_from_scratch=true"] = "start_from_scratch = true needs "
        .. "load, which is not set: a new run begins with step 0 and its data in any case; try: "
        .. "--load RUN, or leave it out", ["start_step=0"] = "start_step = 0 needs load",
        ["start_epoch=3"] = "start_epoch = 3 needs load"} do
      local ok, problem = train(bake("steps=1", "name=nothing", words))
      assert.is_false(ok)
      assert.equal("MR_E_USAGE", problem.code)
      assert.is_truthy(problem.message:find(words .. ": " .. text, 1, true), problem.message)
    end
    local _, _, _, first = train(bake("steps=1", "name=nothing"))
    local ok, problem = train(bake("steps=1", "ckpt_path=" .. first, "start_from_scratch=true"))
    assert.is_false(ok)
    assert.matches("ckpt_path takes weights alone, and begins with the data", problem.message)
  end)

  it("starts from weights of others and keeps what became of them in the journal", function()
    local ckpt = require "moonreel.ckpt"
    local _, _, _, first = train(bake("steps=1", "name=others"))
    local from <close> = ckpt.open(first .. "/ckpt/step-000000000001")
    local rows = {{name = "module.surplus.3", dtype = "f32", shape = {1}, ptr = "\0\0\0\0",
      bytes = 4}}
    for _, name in ipairs(from:names()) do
      if not name:find("^adam_") and not name:find("^ema%.") and not name:find("^master%.")
          and name ~= "final_layer.linear.bias" then
        local info = from:info(name)
        rows[#rows + 1] = {name = "module." .. name, dtype = info.dtype, shape = info.shape,
          ptr = from:read(name), bytes = info.bytes}
      end
    end
    local folder = out .. "/others"
    base.make_dir(folder .. "/model")
    ckpt.write(folder .. "/model/model.safetensors", rows)
    local ok, code, lines, dir = train(bake("steps=1", "name=start", "ckpt_path=" .. folder))
    assert.is_true(ok, tostring(code))
    local text = table.concat(lines, "\n")
    assert.matches("missing +final_layer.linear.bias +1 +not in the file", text)
    assert.matches("unexpected +module.surplus.3 +1 +no parameter of this name", text)
    assert.matches(("%d tensors loaded, 1 missing, 1 unexpected"):format(#rows - 1), text)
    local kept = entries(dir, "weights")[1]
    assert.same({{"final_layer.linear.bias"}, {"module.surplus.3"}, {}, {}, {}}, {kept.missing,
      kept.unexpected, kept.dropped, kept.fresh, kept.resized})
    ok, code = train(bake("steps=1", "name=start", "strict=true", "ckpt_path=" .. folder))
    assert.is_false(ok)
    assert.equal("MR_E_CKPT", code.code)
    assert.matches("1 tensors are missing, the first is 'final_layer.linear.bias'", code.message)
    base.replace_file(folder .. "/config.json", '{"hidden_size": 1152}')
    os.rename(folder .. "/model/model.safetensors", folder .. "/model.safetensors")
    ok, code = train(bake("steps=1", "name=start", "ckpt_path=" .. folder))
    assert.is_false(ok)
    assert.matches("config.json: hidden_size is 1152, but 'module.t_embedder.mlp.2.weight' is "
      .. "%[32,32%]: its axis 0 has 32", code.message)
  end)

  it("leaves nothing behind when it cannot start", function()
    local empty = out .. "/empty"
    for _, change in ipairs{"dataset.data_path=" .. out .. "/none.mrx", "model.num_heads=3",
        "resolutions.32px.pixels=99999"} do
      local ok, err = train(bake("steps=2", "outputs=" .. empty, change))
      assert.is_false(ok)
      assert.is_true(err.exit >= 3)
      assert.same({}, base.list_dir(empty))
    end
  end)

  it("refuses to continue under another model, naming the field", function()
    local _, _, _, dir = train(bake("steps=2", "name=other"))
    local ok, err = train(bake("steps=4", "name=other", "model.mlp_ratio=2", "load=" .. dir))
    assert.is_false(ok)
    assert.equal("MR_E_RECIPE", err.code)
    assert.matches("model.mlp_ratio: 4.* when the checkpoint was made, 2", err.message)
  end)
end)
