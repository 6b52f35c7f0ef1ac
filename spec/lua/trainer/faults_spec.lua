-- Whole runs on faulty disks and with concurrent launches. MOONREEL_ROUNDS=200 makes the first spec
-- longer, MOONREEL_LAUNCHES=40 the last.
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local process = require "moonreel.core.process"
local run = require "moonreel.run"

local ROUNDS = math.tointeger(os.getenv("MOONREEL_ROUNDS")) or 6
local LAUNCHES = math.tointeger(os.getenv("MOONREEL_LAUNCHES")) or 4
local SEED = math.tointeger(os.getenv("MOONREEL_SEED")) or 8
-- the address sanitizer must be the first library, but accepts being the second
local SANITIZER = "ASAN_OPTIONS=verify_asan_link_order=0:" .. (os.getenv("ASAN_OPTIONS") or "")

local out = demo_data.scratch()

-- the command line of a run with faults; `before` precedes the program
local function words(before, trouble, ...)
  local list = table.move(before, 1, #before, 1, {})
  for _, word in ipairs { process.program(), "spec/support/troubled_run.lua", trouble,
    "dataset.data_path=" .. demo_data.path(), "threads=1", "num_workers=1", "warmup_steps=2",
    "log_every=1000",
    "model.depth=1", "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
    "model.caption_channels=32", ... } do
    list[#list + 1] = word
  end
  return list
end

local function start(before, trouble, ...)
  return process.run(words(before, trouble, ...), "", { deadline_s = 600,
    output_bytes = 1 << 20 })
end

local function quoted(list)
  for i, word in ipairs(list) do
    list[i] = "'" .. word .. "'"
  end
  return table.concat(list, " ")
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

-- the step of a run's newest checkpoint, after each of its bytes was compared
local function newest_step(dir)
  local newest <close> = ckpt.newest(dir)
  return newest.step
end

-- does this command work here? Namespaces may be forbidden.
local function works(...)
  return process.run({ "/usr/bin/env", ... }, "", { deadline_s = 600, output_bytes = 1 << 16,
    quiet = true }).exit == 0
end

describe("a run on faulty disks", function()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("has its last step on the disk or exits with 8", function()
    local disk = process.program():gsub("[^/]*$", "faulty_disk.so")
    assert.is_true(base.exists(disk), disk)
    local ended = {}
    print("faults_spec: seed " .. SEED .. " (MOONREEL_SEED)")
    for round = 1, ROUNDS do
      local function draw(what, n)
        return 1 + math.floor(n * base.random_uniform(SEED, what, round, 0))
      end
      local outputs, steps = ("%s/bad-%d"):format(out, round), draw("steps", 8)
      local stop = round % 2 == 0 and draw("stop", steps) or nil
      local result = start({ "/usr/bin/env", "LD_PRELOAD=" .. disk, SANITIZER,
        "FAULTY_PATH=/001-bad/",
        "FAULTY_SEED=" .. SEED * 1000 + round, "FAULTY_PER_1000=" .. draw("rate", 12),
        "FAULTY_SLOW_MS=" .. draw("slow", 60) }, ("{term = %s}"):format(stop),
        "outputs=" .. outputs, "name=bad", "ckpt_every=1", "ckpt_deadline=5", "steps=" .. steps)
      local dir, exit = outputs .. "/001-bad", result.exit
      local place = ("round %d: exit %s\n%s"):format(round, exit, result.output)
      ended[exit] = (ended[exit] or 0) + 1
      -- a run that could not begin has nothing to lose
      if exit == 0 then
        assert.equal(steps, newest_step(dir), place)
        assert.equal(steps, #entries(dir, "step"), place)
        assert.equal(steps, entries(dir, "end")[1].step, place)
      elseif exit == 143 then
        assert.equal(entries(dir, "stop")[1].step, newest_step(dir), place)
      else
        assert.equal(8, exit, place)
      end
      os.execute("rm -r '" .. outputs .. "'")
    end
    local text = {}
    for exit, n in pairs(ended) do
      text[#text + 1] = ("%d ended with %d"):format(n, exit)
    end
    print("faults_spec: " .. table.concat(text, ", "))
    assert.is_true((ended[0] or 0) + (ended[143] or 0) > 0)
  end)

  it("ends with the same bits after a disk that was full for a while", function()
    local apart = works("unshare", "-m", "true") and { "unshare", "-m" }
      or works("unshare", "-rm", "true") and { "unshare", "-rm" }
    if not apart then
      pending("mount namespaces are not allowed here")
      return
    end
    local disk, kept = out .. "/disk", out .. "/kept"
    base.make_dir(disk)
    local same = { "ckpt_every=10", "steps=50", "name=full", "tensorboard=true", "wandb=true" }
    local trouble = ("{mount = %q, size = '24m', filler = %q, keep = %q, fill = 12, free = 32}")
      :format(disk, disk .. "/filler", kept)
    local result = start({ "/usr/bin/env", table.unpack(apart) }, trouble, "outputs=" .. disk,
      table.unpack(same))
    assert.equal(0, result.exit, result.output)
    for _, step in ipairs { 20, 30 } do
      assert.matches(("save of step %d: %%w+: [^\n]*"):format(step), result.output)
    end
    assert.matches("the journal cannot be written: No space left on device; its lines wait",
      result.output)
    assert.matches("the journal is written again; no line is missing", result.output)
    local dir = kept .. "/001-full"
    for i, entry in ipairs(entries(dir, "step")) do
      assert.equal(i, entry.step)
    end
    assert.equal(50, #entries(dir, "step"))
    assert.equal(50, entries(dir, "end")[1].step)
    assert.same({ 50, 40, 10 }, ckpt.steps(dir))
    for _, name in ipairs { "tensorboard", "wandb" } do
      local _, times = result.output:gsub(name .. " cannot be written: ", "")
      -- a tracker whose last file page had room for all of its lines notices no full disk
      assert.is_true(times <= 1, result.output)
      -- it has all lines since
      local report = require("moonreel.trackers").export(dir, name)
      assert.same({ 0, 1, {} }, { report.written, report.kept, report.left })
    end
    result = start({ "/usr/bin/env" }, "{}", "outputs=" .. out, table.unpack(same))
    assert.equal(0, result.exit, result.output)
    assert.matches("equal: %d+ tensors, bit for bit",
      demo_data.moonreel("ckpt", "diff", dir, out .. "/001-full"))
  end)

  it("drops a save on all ranks when one rank has no room, and tries the next save", function()
    -- between two steps, rank 1 may write at most 4 kB into a file
    local script = out .. "/full.lua"
    base.replace_file(script, [[
      local base, loop = require "moonreel.core.base", require "moonreel.trainer.loop"
      local step, full, free = loop.step, tonumber(arg[1]), tonumber(arg[2])
      function loop.step(r)
        if r.team.rank == 1 and (r.step == full or r.step == free) then
          pcall(r.saver.wait, r.saver) -- the save before it has ended, with or without a commit
          assert(os.execute(("prlimit --pid %d --fsize=%s:"):format(base.pid(),
            r.step == full and 4096 or "unlimited")))
        end
        return step(r)
      end
      local good, problem = pcall(require("moonreel.cli.train").run,
        table.move(arg, 3, #arg, 1, {}))
      io.stderr:write(good and "" or problem.message .. "\n")
      os.exit(good and 0 or problem.exit)]])
    -- returns exit code, output and the steps of the checkpoints that exist
    local function train(free, steps)
      local dir = ("%s/one-%d"):format(out, free)
      local done = process.run({ "/bin/sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\" 2>&1",
        process.program(), "-n", "2", script, "4", tostring(free), "tiny/demo",
        "dataset.data_path=" .. demo_data.path(), "threads=1", "num_workers=1", "warmup_steps=2",
        "model.depth=1", "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
        "model.caption_channels=32", "log_every=1000", "outputs=" .. dir, "ckpt_every=3",
        "ckpt_deadline=5", "steps=" .. steps }, "", { deadline_s = 600, output_bytes = 1 << 20 })
      return done.exit, done.output, ckpt.steps(dir .. "/001-demo")
    end
    local part = "rank 1 could not write its part: host [^:\n]+: %S+r00001%-of%-00002"
      .. "%.safetensors[^\n]*: [^\n]*File too large\n"
    local exit, reported, steps = train(8, 12)
    assert.equal(0, exit, reported)
    assert.matches("save of step 6: retry: " .. part, reported)
    -- the files of the failed save are removed
    assert.same({ 12, 9, 3 }, steps)
    exit, reported, steps = train(1000, 200)
    assert.equal(8, exit, reported)
    local refusal = "no checkpoint of step %d+ was committed in 5 s .*; the last save: .*" .. part
    assert.matches(refusal, reported)
    assert.same({ 3 }, steps)
  end)

  it("exits with 8 when one rank has no room even for the reason of its failure", function()
    local disk = process.program():gsub("[^/]*$", "faulty_disk.so")
    local dir = out .. "/none"
    local done = process.run({ "/usr/bin/env", "LD_PRELOAD=" .. disk, SANITIZER,
      "FAULTY_PATH=/r00001-of", "FAULTY_FULL=1", "/bin/sh", "-c", 'exec "$0" "$@" 2>&1',
      process.program(), "train", "tiny/demo", "-n", "2",
      "dataset.data_path=" .. demo_data.path(), "threads=1", "num_workers=1", "warmup_steps=2",
      "model.depth=1", "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32", "outputs=" .. dir, "ckpt_every=3", "steps=12", "restarts=0",
      "ckpt_deadline=5" },
      "", { deadline_s = 600, output_bytes = 1 << 20 })
    assert.equal(8, done.exit, done.output)
    assert.matches("rank 1 could not write its part: the disk has no space for the reason either",
      done.output)
    assert.same({}, ckpt.steps(dir .. "/001-demo"))
  end)

  it("has one writer across process namespaces, and resumes in another one", function()
    if not works("unshare", "-pf", "--mount-proc", "true") then
      pending("process namespaces are not allowed here")
      return
    end
    local outputs = out .. "/apart"
    local dir = outputs .. "/001-apart"
    -- the first process of a namespace cannot kill itself with SIGKILL, so it is another one
    local apart = { "/usr/bin/env", "unshare", "-pf", "--mount-proc", "sh", "-c",
      '"$@"; exit $?', "sh" }
    local function launch(trouble, steps, ...)
      return words(apart, trouble, "outputs=" .. outputs, "name=apart", "ckpt_every=1",
        "steps=" .. steps, ...)
    end
    local steps = LAUNCHES + 2
    for i = 1, LAUNCHES do
      local load = i > 1 and { "load=" .. dir } or {}
      -- at each launch's first step another launch tries to write; then the launch dies
      local rival = quoted(launch("{}", steps, "load=" .. dir))
      local trouble = ("{run = {step = %d, command = %q}, kill = %d}"):format(i, rival, i)
      local result = process.run(launch(trouble, steps, table.unpack(load)), "",
        { deadline_s = 600, output_bytes = 1 << 20, quiet = true })
      assert.equal(137, result.exit, result.output)
      assert.matches("this run is being written by process %d+ on host [^\n]*; "
        .. "try: stop that one first, in its container", result.output)
      assert.matches("exit 8\n", result.output)
      local owner = run.owner(dir)
      assert.equal(i, owner.fence)
      assert.is_true(owner.dead)
    end
    local result = process.run(launch("{}", steps, "load=" .. dir), "",
      { deadline_s = 600, output_bytes = 1 << 20 })
    assert.equal(0, result.exit, result.output)
    assert.equal(steps, newest_step(dir))
    result = start({ "/usr/bin/env" }, "{}", "outputs=" .. out, "name=alone", "ckpt_every=1",
      "steps=" .. steps)
    assert.equal(0, result.exit, result.output)
    assert.matches("equal: %d+ tensors, bit for bit",
      demo_data.moonreel("ckpt", "diff", dir, demo_data.run_dir(out, "alone")))
  end)
end)
