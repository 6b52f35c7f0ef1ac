--- The first checkpoint that fails a test.
-- Covers: lua/moonreel/runs/bisect.lua lua/moonreel/cli/ckpt/bisect.lua
local base = require "moonreel.core.base"
local bisect = require "moonreel.runs.bisect"
local ckpt = require "moonreel.ckpt"
local command = require "moonreel.cli.ckpt"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local made_run = require "spec.support.made_run"
local printed = require "spec.support.printed"

local start, step = made_run.start, made_run.step

-- judges by a row of letters: g, b, s (cannot be judged); each checkpoint at most once
local function search(row)
  local asked, seen = {}, {}
  local words = { g = "good", b = "bad", s = "skip" }
  local r = bisect.search(#row, function(i)
    assert.is_nil(seen[i], row)
    asked[#asked + 1], seen[i] = i, true
    return words[row:sub(i, i)]
  end)
  return r, asked
end

describe("a binary search", function()
  it("finds the first bad checkpoint, although some cannot be judged", function()
    for n = 1, 7 do
      for first = 1, n + 1 do
        for mask = 0, (1 << n) - 1 do
          local list = {}
          for i = 1, n do
            list[i] = mask >> i - 1 & 1 == 1 and "s" or i < first and "g" or "b"
          end
          local row = table.concat(list)
          local r = search(row)
          local good, bad = row:match "^.*()g", row:match "()b"
          if not good and not bad then
            assert.equal("none judged", r.outcome, row)
          elseif not bad then
            assert.same({ "all good", good }, { r.outcome, r.good }, row)
          elseif not good then
            assert.same({ "first is bad", bad, bad - 1 }, { r.outcome, r.bad, #r.aside }, row)
          else
            assert.same({ "found", good, bad, bad - good - 1 },
              { r.outcome, r.good, r.bad, #r.aside }, row)
          end
        end
      end
    end
  end)

  it("tests the two ends and then log2(n) checkpoints", function()
    for _, n in ipairs { 3, 10, 1000 } do
      for _, first in ipairs { 2, n // 2 + 1, n } do
        local _, asked = search(("g"):rep(first - 1) .. ("b"):rep(n - first + 1))
        assert.same({ 1, n }, { asked[1], asked[2] })
        assert.is_true(#asked <= 2 + math.ceil(math.log(n - 1, 2)), #asked)
      end
    end
  end)
end)

describe("moonreel ckpt bisect", function()
  local dir, run_dir, asked

  before_each(function()
    dir = folder.new()
    run_dir = made_run.make(dir, "outputs/001-demo", { start(0), step(1, 5), step(2, 5),
      { kind = "spike", step = 2, cause = "loss", value = 9, limit = 8, wall = 102.1 },
      step(3, 5), { kind = "save", event = "commit", step = 2, wall = 103.2 },
      { kind = "skip", step = 4, reason = "no good sample", wall = 104 }, step(5, 4),
      { kind = "rollback", step = 2, from = 5, why = "a spike", wall = 105.5 }, step(3, 5,
        { wall = 106 }), step(4, 5, { wall = 107, lr = 0.05 }),
      { kind = "spike", step = 4, cause = "norm", value = 9, limit = 8, wall = 107.1 },
      { kind = "save", event = "commit", step = 4, wall = 107.5 }, step(5, 5, { wall = 108 }),
      { kind = "note", text = "late", wall = 108.5 }, step(6, 5, { wall = 109, lr = 0.05 }) })
    asked = dir.path .. "/asked"
    for i = 1, 3 do
      local saver <close> = ckpt.saver(run_dir)
      saver:save { step = 2 * i, tensors = { { name = "w", dtype = "f32", shape = { 1 },
        ptr = string.pack("<f", i) } }, meta = { recipe_hash = "r", dataset_fingerprint = "d",
          sampler = "s", seed = 1, machine = {} } }
      saver:wait(20)
    end
  end)
  after_each(function() dir:remove() end)

  -- runs the command on a script that records each call and judges by the step
  local function call(script, ...)
    local words = { "bisect", "demo", "--outputs=" .. dir.path .. "/outputs", ... }
    table.move({ "--", "sh", "-c", ([[echo "$MOONREEL_CKPT" >> '%s'
      test "$MOONREEL_CKPT" = "$0" -a "ckpt=$0" = "$1" || exit 130
      n=${0##*-}; n=${n#00000000000}; %s]]):format(asked, script), "{}", "ckpt={}" }, 1, 6,
      #words + 1, words)
    local text, code = printed(command.run, words)
    return code, text
  end
  local function times()
    return select(2, base.read_file(asked):gsub("\n", ""))
  end

  it("names the first bad checkpoint, and the journal's lines before it", function()
    local code, text = call "test $n -lt 4"
    assert.equal(0, code, text)
    assert.matches("^step 2: good, exit 0\nstep 6: bad, exit 1\nstep 4: bad, exit 1\n"
      .. "the first bad one: step 4, [^\n]*/step%-000000000004\nthe last good one:  step 2, ", text)
    local report = {}
    for line in text:match("\nbetween them:\n(.*)$"):gmatch "[^\n]+" do
      report[#report + 1] = line:sub(24)
    end
    assert.same({ "step 4 skipped: no good sample", "step 5: back to step 2: a spike",
      "step 4: the learning rate changes from 0.5 to 0.05",
      "step 4 is a spike of the gradient norm: 9, limit 8; action -" }, report)
    local r = json.decode((select(2, call("test $n -lt 6 || exit 7", "--json"))))
    assert.same({ "found", 4, 6, { 0, 7, 0 } }, { r.outcome, r.good.step, r.bad.step,
      { r.judged[1].exit, r.judged[2].exit, r.judged[3].exit } })
    assert.same({ "lr", "note", "lr" }, { r.events[1].kind, r.events[2].kind, r.events[3].kind })
  end)

  it("reports that no checkpoint is bad, with exit 1", function()
    local code, text = call "true"
    assert.equal(1, code)
    assert.matches("\nall are good, up to the newest one that could be judged: step 6$", text)
    code, text = call "exit 127"
    assert.equal(1, code)
    assert.matches("\nthe first one is bad already: step 2, ", text)
    code, text = call "exit 125"
    assert.equal(1, code)
    assert.matches("\nnone could be judged: ", text)
  end)

  it("resumes an interrupted search with the same command only", function()
    local script = "test $n = 4 -a ! -e $MOONREEL_CKPT/../../../on && kill -INT $$; test $n -lt 4"
    local good, problem = pcall(call, script)
    assert.is_false(good)
    assert.equal(130, problem.exit)
    assert.matches("step 4: the command ended with signal 2 .*the same command again",
      problem.message)
    assert.equal(3, times())
    dir:write("outputs/on", "")
    local code, text = call(script)
    assert.equal(0, code)
    assert.matches("^step 2: good, as an interrupted bisect has found; [^\n]*\nstep 6: bad, as "
      .. "[^\n]*\nstep 4: bad, exit 1\n", text)
    assert.equal(4, times())
    -- a completed search leaves no state
    assert.is_false(base.exists(run_dir .. "/bisect.json"))
    call(script)
    assert.equal(7, times())
  end)

  it("tests again with --again, and when the command or a checkpoint differs", function()
    local stopped = "test $n = 6 && kill -INT $$; true"
    pcall(call, stopped)
    pcall(call, stopped)
    assert.equal(3, times())
    pcall(call, stopped, "--again")
    assert.equal(5, times())
    pcall(call, stopped .. " ")
    assert.equal(7, times())
  end)

  it("does not judge a damaged or replaced checkpoint", function()
    os.execute(("truncate -s -1 '%s/r00000-of-00001.safetensors'"):format(ckpt.dir(run_dir, 6)))
    local file <close> = assert(io.open(ckpt.dir(run_dir, 4) .. "/r00000-of-00001.safetensors",
      "r+b"))
    file:seek("end", -1)
    file:write "?"
    file:flush()
    local code, text = call "test $n -lt 4"
    assert.equal(1, code)
    assert.matches("step 6 is left out: [^\n]+\nstep 2: good, exit 0\nstep 4: cannot be judged: ",
      text)
    assert.equal(2, times())
  end)

  it("refuses a missing command and a run without checkpoints", function()
    local at = "--outputs=" .. dir.path .. "/outputs"
    for _, case in ipairs { { { "demo", at, "--", "no-such-command" }, "no such command" },
        { { "demo", at }, "expected RUN %-%- COMMAND, got 'demo'" },
        { { "none", at, "--", "true" }, "'none' is not a run directory" } } do
      local good, problem = pcall(command.run, { "bisect", table.unpack(case[1]) })
      assert.is_false(good)
      assert.equal("MR_E_USAGE", problem.code)
      assert.matches(case[2], problem.message)
    end
    base.remove_dir(run_dir .. "/ckpt")
    local good, problem = pcall(call, "true")
    assert.is_false(good)
    assert.matches("has no complete checkpoint", problem.message)
  end)
end)
