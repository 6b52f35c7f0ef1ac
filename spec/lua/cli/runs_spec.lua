--- moonreel runs, log, note and order --audit, for runs that are killed, stopped, rolled back and
-- loaded.
-- Covers: lua/moonreel/cli/log.lua lua/moonreel/cli/note.lua lua/moonreel/cli/order.lua
local background = require "spec.support.background"
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local runs = require "moonreel.run"
local made_run = require "spec.support.made_run"
local process = require "moonreel.core.process"

local place, outputs

local function run(words, want)
  local out, err, code = folder.moonreel(words, "NO_COLOR=1")
  assert.equal(want or 0, code, words .. "\n" .. out .. err)
  return out, err
end

local RECIPE = [[return recipe.extend("tiny/demo") { dataset = { data_path = %q }, outputs = %q,
  bucket_config = recipe.replace { ["32px"] = { [1] = { 1.0, 8 }, [6] = { 1.0, 4 } } },
  model = { depth = 1, hidden_size = 32, num_heads = 2, caption_channels = 32 },
  text_encoder = { width = 32, rows = 1024 }, dtype = "fp32", warmup_steps = 2,
  lr_schedule = "constant", threads = 1, num_workers = 1, log_every = 5, steps = 20 }]]

local function train(words, want)
  return run(("%s train %s/r.lua %s"):format(words:match("^(%-n %d+)") or "", place.path,
    words:gsub("^%-n %d+", "")), want)
end
local function dir_of(name) return demo_data.run_dir(outputs, name) end
local function audit(name, want) return run("order --audit " .. dir_of(name), want) end

setup(function()
  place = folder.new()
  outputs = place.path .. "/out"
  place:write("r.lua", RECIPE:format(demo_data.path(), outputs))
end)
teardown(function()
  background.stop()
  place:remove()
  demo_data.remove()
end)

describe("a run that was killed and resumed", function()
  local log
  setup(function()
    -- killed after step 13, with a checkpoint of step 10
    local program = place:write("killed.lua", [[
      local loop = require "moonreel.trainer.loop"
      local step = loop.step
      function loop.step(r)
        local more = step(r)
        if r.step == 7 or r.step == 13 then
          r.saver:wait()
        end
        if r.step == 13 then
          os.execute("kill -9 $PPID; sleep 9")
        end
        return more
      end
      os.exit(require("moonreel.cli.dispatch").run(arg), true)]])
    folder.moonreel(("%s train %s/r.lua name=a ckpt_every=5"):format(program, place.path))
    assert.matches("a +dead +13 of 20", (run("runs " .. outputs)))
    run("note " .. dir_of("a") .. " 'the host was restarted'")
    train("name=a ckpt_every=5 steps=24 load=" .. dir_of("a"))
    log = run("log " .. dir_of("a"))
  end)

  it("is printed in the order of time, with the repeated steps", function()
    local events = {}
    for event in log:gmatch("\n?[%d-]+ [%d:]+  ([^\n]*)") do
      events[#events + 1] = event:match("^launch %d starts at step %d+ of %d+")
        or event:match("^step %d+") or event:match("^done: step %d+")
        or event:match("^note: .*") or event:match("^error") or nil
    end
    assert.same({ "launch 1 starts at step 0 of 20", "step 1", "step 5", "step 10",
      "note: the host was restarted", "launch 2 starts at step 10 of 24", "step 11", "step 15",
      "step 20", "done: step 24" }, events)
    assert.matches("checkpoint of step 5: [%d.]+ MB, copied in [%d.]+ ms, written in", log)
    assert.matches("\n[%d-]+ [%d:]+  step 20/24  loss [%d.]+  norm [%d.]+  lr 0.001  [%d.]+ ms  "
      .. "data wait [%d.]+ ms\n", log)
    assert.equal(24, select(2, run("log --every 1 " .. dir_of("a")):gsub("  step %d+/24 ", ""))
      + 10)
  end)

  it("is proven to repeat and skip nothing, until a line is changed", function()
    local out = audit "a"
    assert.matches("24 steps, %d+ samples of 1 epoch: each step has the samples that the order "
      .. "gives, none is repeated or skipped\n  3 steps were discarded by a rollback or a "
      .. "restart and do not count\n$", out)
    local path = dir_of("a") .. "/journal.jsonl"
    local text = base.read_file(path)
    local first = text:match('"keys":"(%x+)"')
    base.replace_file(path, text:gsub('("keys":")%x+(","kind":"step","loss":[%d.]+,"lr":[%d.]+,'
      .. '"samples":%d+,"step":20)', "%1" .. first .. "%2"))
    assert.matches("step 20: it repeats the samples of step 1\n.*1 of 24 steps are not proven",
      (audit("a", 1)))
    local report = json.decode((run("order --json --audit " .. dir_of("a"), 1)))
    assert.same({ false, 24, 20 },
      { report[1].proven, report[1].steps, report[1].problems[1].step })
    base.replace_file(path, text)
  end)

  it("has an account of its time", function()
    local rows = json.decode((run("log --time --json " .. dir_of("a"))))
    local by, sum = {}, 0
    for _, row in ipairs(rows) do
      by[row.what], sum = row, sum + (row.what ~= "whole run" and row.seconds or 0)
    end
    assert.same({ 24, 3, 2 }, { by.training.n, by["steps taken back"].n, by["whole run"].n })
    assert.is_true(by["restarting after a failure"].seconds > 0)
    assert.is_true(math.abs(sum - by["whole run"].seconds) < 1e-6)
    assert.matches("what +time +share +times\ntraining +[%d.]+s +[%d.]+ %% +24\n",
      (run("log --time " .. dir_of("a"))))
  end)

  it("is exported as one row for each step that counts", function()
    local rows = require("moonreel.text.csv").rows(run("log --export csv " .. dir_of("a")), "a")
    local lines = {}
    for line in run("log --export json " .. dir_of("a")):gmatch("[^\n]+") do
      lines[#lines + 1] = json.decode(line)
    end
    local curve = require("moonreel.runs.events").read(dir_of("a")):curve()
    assert.same({ 24, 24 }, { #rows, #lines })
    for i, line in ipairs(curve) do
      assert.same(line, lines[i])
      assert.same({ i, line.loss, line.wall }, { tonumber(rows[i].step), tonumber(rows[i].loss),
        tonumber(rows[i].wall) })
    end
  end)

  it("lists its worst samples, and the commands that show them", function()
    train "name=w steps=60 'bucket_config.32px.6={1.0, 1}' bucket_config.32px.1=recipe.remove"
    local out = run("log --worst --count 4 " .. dir_of "w")
    assert.matches("\n%+[%d.]+ +[%d.]+ +1 +%d+ +%d+  clip%-%d+", out)
    local preview = out:match("try: moonreel (data preview [^\n]*)")
    run((preview:gsub("worst.png", place.path .. "/worst.png")))
    assert.is_true(base.exists(place.path .. "/worst.png"))
    assert.equal(4, #json.decode((run("log --worst --count 4 --json " .. dir_of "w"))))
    -- a journal of an older version
    local path = dir_of "w" .. "/journal.jsonl"
    base.replace_file(path, (base.read_file(path):gsub('"keys":"%x+",', "")))
    local _, err = run("log --worst " .. dir_of "w", 1)
    assert.matches("w: no step can be judged: 60 steps have no loss or no digest", err)
    assert.matches("and 50 more steps; .*60 of 60 steps are not proven", (audit("w", 1)))
  end)
end)

describe("runs of other kinds", function()
  it("are proven: by two ranks, loaded, rolled back", function()
    train "-n 2 name=two steps=8"
    assert.matches("8 steps, %d+ samples of 1 epoch: each step", (audit "two"))
    train("name=more virtual_ranks=1 steps=12 load=" .. dir_of "two" .. " start_from_scratch=true")
    assert.matches("12 steps", (audit "more"))
    train("name=fork steps=30 ckpt_every=0 load=" .. dir_of "a" .. "@15")
    assert.matches("15 steps", (audit "fork"))
    -- steps 26 to 29 are a spike: a rollback, which skips the batches that caused it
    local words = ""
    for _, word in ipairs { "r.lua", "name=spiked", "steps=40", "spike.action=rollback",
      "ckpt_every=5", "spike.back_steps=8", "spike.skip_batches=4", "spike.loss_sigmas=1e9",
      "'bucket_config=recipe.replace{32px: {6: (1, 4)}}'" } do
      words = words .. " " .. (word == "r.lua" and place.path .. "/r.lua" or word)
    end
    run(("spec/support/spiked_run.lua '%s' %s"):format(json.encode { draws = { ["26"] = 50,
      ["27"] = 50, ["28"] = 50, ["29"] = 50 } }, words))
    local out = audit "spiked"
    assert.matches("40 steps, 160 samples of 1 epoch: each step", out)
    assert.matches("\n  rollbacks left out %d+ samples, as the recipe says\n  %d+ steps were "
      .. "discarded", out)
    assert.matches("step 29: back to step 20, the batches of 9 steps are left out: gradient norm",
      (run("log " .. dir_of "spiked")))
    assert.matches("rollback from step 29 to 20: gradient norm", (run("runs --tree " .. outputs)))
  end)

  it("are proven stage by stage, also when a stage continues in the data", function()
    local recipe = place:write("s.lua", ([[return recipe.extend("./r") {
      stages = { { name = "a", steps = 6 },
        { name = "b", steps = 11, load = recipe.previous } } }]]))
    run("train " .. recipe .. " name=staged")
    local out = audit "staged"
    assert.matches("stages/a: 6 steps, .*stages/b: 5 steps, %d+ samples of 1 epoch: each step", out)
    assert.matches("stages/b: 5 steps", (run("order --stage b --audit " .. dir_of "staged")))
    assert.matches("no stage 'c' that has begun", select(2, run("order --stage c --audit "
      .. dir_of "staged", 2)))
    assert.matches("staged +finished +11 of 11 +[%d.]+ +%d+s +b ", (run("runs " .. outputs)))
    assert.matches("staged  finished  step 11 of 11  loss [%d.]+\n[│ ]*├─ stage a\n[│ ]*└─ "
      .. "stage b  %-%-load %d+%-staged/a@6\n", (run("runs --tree " .. outputs)))
    assert.equal(11, select(2, run("log --export csv " .. dir_of "staged"):gsub("\n", "")) - 1)
    assert.equal(5, select(2, run("log --export csv --stage b " .. dir_of "staged"):gsub("\n",
      "")) - 1)
    assert.matches("%-%-stage x: in .* no stage of this name has begun; expected a, b", select(2,
      run("log --time --stage x " .. dir_of "staged", 2)))
  end)

  it("are not proven with another index, and the error says so", function()
    local half = place.path .. "/half.mrx"
    run(("data filter %s 'num_frames > 1' -o %s"):format(demo_data.path(), half))
    local _, err = run(("order --audit %s --data %s"):format(dir_of "two", half), 4)
    assert.matches("launch 1 trained on other samples %(fingerprint %x+%) than the index holds "
      .. "%(%x+%); try: %-%-data NAME.mrx", err)
  end)
end)

describe("moonreel log --follow", function()
  -- a run that trains until a file exists
  local function begin(name)
    local gate = place.path .. "/go-" .. name
    local program = place:write("slow.lua", [[
      local base, loop = require "moonreel.core.base", require "moonreel.trainer.loop"
      local step = loop.step
      function loop.step(r)
        if r.step == 6 then
          while not base.exists(os.getenv "GATE") do
            base.sleep(0.002)
          end
        end
        return step(r)
      end
      os.exit(require("moonreel.cli.dispatch").run(arg), true)]])
    background.start(place.path .. "/" .. name .. ".log", "/usr/bin/env", "GATE=" .. gate,
      process.program(), program, "train", place.path .. "/r.lua", "name=" .. name, "steps=9")
    background.await("step 6", place.path .. "/" .. name .. ".log", function()
      local dir = base.exists(outputs .. "/.") and dir_of(name)
      local text = dir and base.exists(dir .. "/journal.jsonl")
        and base.read_file(dir .. "/journal.jsonl")
      return text and text:find('"step":6,', 1, true)
    end)
    return function() base.replace_file(gate, "") end
  end

  it("prints the existing lines and new ones, and ends with the run", function()
    local go = begin "f"
    local log = place.path .. "/follow.txt"
    assert.matches("f +running +6 of 9", (run("runs name~-f " .. outputs)))
    background.start(log, process.program(), "log", "-f", "--every", "1", dir_of "f")
    local function shows(text)
      background.await(text, log, function()
        return base.read_file(log):find(text, 1, true)
      end)
    end
    shows "  step 6/9 "
    run("note " .. dir_of "f" .. " 'while it is at work'")
    shows "note: while it is at work"
    go()
    shows "done: step 9"
    -- a second one, begun after the run has ended, ends at once
    assert.matches("done: step 9, loss [%d.]+\n$", (run("log --follow " .. dir_of "f")))
    assert.matches("note: while it is at work\n.*step 7/9 .*step 9/9 ", base.read_file(log))
  end)

  it("waits for a launcher that restarts lost ranks, and for no other", function()
    local now = base.wall_s()
    local function lost(name, fields, wall)
      return made_run.make(place, name, { made_run.start(0, { wall = wall }),
        made_run.step(1, 5, { wall = wall }), { kind = "error", step = 1, text = "rank 1 was ended",
          wall = wall } }, fields)
    end
    for name, fields in pairs { alone = "", never = "nproc_per_node = 2, restarts = 0" } do
      assert.matches("rank 1 was ended\n$", (run("log -f " .. lost(name, fields, now))))
    end
    assert.matches("rank 1 was ended\n$", (run("log -f " .. lost("old", "nproc_per_node = 2",
      now - 1000))))
    local dir, log = lost("again", "nproc_per_node = 2", now), place.path .. "/again.txt"
    background.start(log, process.program(), "log", "-f", "--every", "1", dir)
    local function shows(text)
      background.await(text, log, function() return base.read_file(log):find(text, 1, true) end)
    end
    shows "rank 1 was ended"
    local lock <close> = runs.lock(dir)
    local journal <close> = runs.journal(dir)
    journal:append(made_run.start(1, { branch = lock:fence(), wall = now }))
    shows "launch 2 starts at step 1"
    journal:append { kind = "end", step = 2, loss = 1, wall = now }
    shows "done: step 2"
  end)

  it("ends quietly on a signal", function()
    local go = begin "g"
    base.replace_file(place.path .. "/g.txt", "")
    local done = process.run({ "/bin/sh", "-c", ('"$0" log -f "$1" > "$2" 2>&1 & p=$!; '
      .. 'while ! grep -q "step 5/9" "$2"; do sleep 0.01; done; kill -TERM $p; wait $p; '
      .. "echo $?; cat \"$2\""), process.program(), dir_of "g", place.path .. "/g.txt" }, "",
      { deadline_s = 600 })
    assert.matches("^143\n[^\n]*launch 1 starts[^\n]*\n[^\n]*step 1/9[^\n]*\n[^\n]*step 5/9"
      .. "[^\n]*\n$", done.output)
    go()
  end)
end)

describe("moonreel runs", function()
  local small
  setup(function()
    small = place.path .. "/small"
    for i, lr in ipairs { "0.25", "0.5", "1e-4" } do
      made_run.make(place, ("small/00%d-x"):format(i), { made_run.start(0),
        made_run.step(1, 5 - i / 2), { kind = "end", step = 1, loss = 5 - i / 2 } },
        ("optim = { lr = %s }"):format(lr))
    end
    base.make_dir(small .. "/not-a-run")
  end)

  local function names(words)
    local list = {}
    for i, row in ipairs(json.decode((run("runs --json " .. small .. " " .. words)))) do
      list[i] = row.name
    end
    return table.concat(list, " ")
  end

  it("lists runs, selected by fields of the recipe and by columns", function()
    assert.matches("^name +state +step +loss +age +recipe\n001%-x +finished +1 of 40 +4.5000 +"
      .. "%d+d%d%dh +.*main.lua\n", (run("runs " .. small)))
    for words, want in pairs { [""] = "001-x 002-x 003-x", ["optim.lr=0.25"] = "001-x",
      ["'lr<0.3' 'loss<4'"] = "003-x", ["'lr>=0.25'"] = "001-x 002-x", ["state=running"] = "" } do
      assert.equal(want, names(words), words)
    end
    assert.equal("no run of the 3 in " .. small .. " has these values\n", (run("runs lr=7 "
      .. small)))
    assert.matches("not%-a%-run has no runs", (run("runs " .. small .. "/not-a-run")))
  end)

  it("puts runs next to each other", function()
    local out = run(("runs --compare %s/001-x %s/003-x"):format(small, small))
    assert.matches("^field +001%-x +003%-x\noptim.lr +0.25 +0.0001\n\nloss by step\n", out)
    assert.matches("\na  001%-x  4.5000 at 1\nb  003%-x  3.5000 at 1\n$", out)
    assert.same({ { field = "optim.lr", ["001-x"] = "0.25", ["002-x"] = "0.5" } }, json.decode(
      (run(("runs --json --compare %s/001-x %s/002-x"):format(small, small)))))
  end)

  it("refuses wrong usage, with a proposal", function()
    for words, pattern in pairs { ["runs nowhere"] = "nowhere: no such folder; try: moonreel runs",
      ["runs a b"] = "'b': expected one folder, or FIELD=VALUE",
      ["runs --compare 001"] = "%-%-compare: expected two runs or more, got 1",
      ["runs " .. small .. " lrr=1"] = "lrr is not a field, did you mean 'lr'",
      ["log"] = "expected one run, got 0", ["log nowhere"] = "'nowhere' is not a run directory",
      ["log --export xml " .. small .. "/001-x"] = "expected csv, json, tensorboard or wandb, "
        .. "got 'xml'",
      ["log --time --follow " .. small .. "/001-x"] = "%-%-follow cannot be combined with %-%-time",
      ["note " .. small .. "/001-x"] = "expected a run and a text, got 1 word;",
      ["note " .. small .. "/001-x ' '"] = "the text is empty",
      ["order --audit nowhere"] = "order: 'nowhere' is not a run directory" } do
      local _, err = run(words, 2)
      assert.matches(pattern, err)
    end
  end)
end)
