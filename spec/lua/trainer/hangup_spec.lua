--- No step is lost when a terminal closes or the reader of the log ends.
-- Covers: core/bind/signal.c core/comm/launch.c lua/moonreel/text/output.lua
-- Covers: lua/moonreel/trainer/progress.lua lua/moonreel/trainer/cadence.lua
-- Covers: lua/moonreel/cluster/launch.lua lua/moonreel/cluster/node.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local cluster = require "spec.support.cluster"
local demo_data = dofile "spec/support/demo_data.lua"
local journal = require "moonreel.core.json"
local process = require "moonreel.core.process"

-- a larger number makes this spec longer
local TIMES <const> = tonumber(os.getenv "MOONREEL_HANGUPS" or 3)
local SEED <const> = tonumber(os.getenv "MOONREEL_SEED" or 1)

local out = demo_data.scratch()
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

local function words(name, ...)
  return { "train", "tiny/demo", "dataset.data_path=" .. demo_data.path(),
    "outputs=" .. out, "name=" .. name, "steps=60", "dtype=fp32", "warmup_steps=2", "threads=1",
    "num_workers=1", "model.depth=1", "model.hidden_size=32", "model.num_heads=2",
    "text_encoder.width=32", "model.caption_channels=32", "log_every=1",
    'bucket_config={["32px"]={[1]={1.0,2}}}', ... }
end

-- the only run of a name: its folder, the steps it saved, lines of its journal by kind
local function run_of(name)
  local dir = assert(io.popen("ls -d '" .. out .. "'/*-" .. name)):read "l"
  local lines = {}
  for line in io.lines(dir .. "/journal.jsonl") do
    local one = journal.decode(line)
    lines[one.kind] = lines[one.kind] or {}
    table.insert(lines[one.kind], one)
  end
  return dir, ckpt.steps(dir), lines
end

-- code that sends a signal to this process or to its launcher before a step
local function before_step(step, to, signal)
  return ([[
local micros = require "moonreel.trainer.micros"
local run = micros.run
function micros.run(r)
  if r.step + 1 == %d and r.team.leads then
    os.execute("kill -%s " .. (%s))
  end
  return run(r)
end]]):format(step, signal or "HUP", to)
end

local CHILD = [[
%s
os.exit(require("moonreel.cli.dispatch").run(arg), true)]]

-- runs the program with code before its command; a shell may first change what it inherits
local function start(shell, code, list)
  return process.run({ "/bin/sh", "-c", shell, "sh", process.program(), "-e",
    CHILD:format(code), table.unpack(list) }, "", { deadline_s = 600, output_bytes = 1 << 20 })
end

-- runs a shell script with these words as $0, $1, ...; returns output and exit code
local function shell(script, ...)
  return process.run({ "/bin/sh", "-c", script, ... }, "", { deadline_s = 600 })
end

describe("a run whose terminal closes", function()
  it("exits with 129 after a checkpoint of its last step, at any time", function()
    math.randomseed(SEED)
    for i = 1, TIMES do
      local step, name = math.random(2, 58), "hup" .. i
      local done = start('exec "$@" 2>&1', before_step(step,
        'require("moonreel.core.base").pid()'), words(name))
      assert.equal(129, done.exit, ("seed %d, step %d: %s"):format(SEED, step, done.output))
      local _, steps, lines = run_of(name)
      assert.same({ step }, steps)
      assert.same({ 1, step }, { lines.stop[1].signal, lines.stop[1].step })
    end
  end)

  it("ignores the second hangup that the shell sends", function()
    local twice = before_step(5, [["$PPID; kill -HUP $PPID"]])
    local done = start('exec "$@" 2>&1', twice, words "twice")
    assert.equal(129, done.exit, done.output)
    assert.same({ 5 }, (select(2, run_of "twice")))
  end)

  it("treats two equal signals at a time as one, because timeout sends two", function()
    local done = start('exec "$@" 2>&1', before_step(5, [["$PPID $PPID"]], "TERM"), words "same")
    assert.equal(143, done.exit, done.output)
    assert.same({ 5 }, (select(2, run_of "same")))
  end)

  it("continues when hangups are ignored, as under nohup", function()
    for _, ranks in ipairs { "1", "2" } do
      local name = "nohup" .. ranks
      local done = start([[trap '' HUP; exec "$@" 2>&1]], before_step(5,
        [["$PPID"]]), words(name, "-n", ranks))
      assert.equal(0, done.exit, done.output)
      assert.same({ 60 }, (select(2, run_of(name))))
    end
  end)

  it("ends on all ranks when only the launcher has the terminal that closes", function()
    if not os.execute "command -v tmux > /dev/null" then
      return pending "tmux is not installed"
    end
    local session = ("moonreel-spec-%d"):format(base.pid())
    local list = { process.program(), table.unpack(words("closed", "-n", "2", "steps=100000")) }
    for i, word in ipairs(list) do
      list[i] = "'" .. word .. "'"
    end
    local done = shell([[
      tmux -L "$0" -f /dev/null new-session -d "exec $1"
      pid=$(tmux -L "$0" list-panes -F '#{pane_pid}')
      until grep -qs '"kind":"step"' "$2"/*-closed/journal.jsonl; do kill -0 $pid || exit 99; done
      tmux -L "$0" kill-server
      tail --pid=$pid -f /dev/null]], session, table.concat(list, " "), out)
    assert.equal(0, done.exit, done.output)
    local _, steps, lines = run_of "closed"
    assert.same({ 1, steps[1] }, { lines.stop[1].signal, lines.stop[1].step })
  end)

  it("ends on all ranks after one checkpoint and is not restarted", function()
    -- the launcher is the parent of the rank that trains
    local done = shell([[
      "$@" > "$0" 2>&1 & p=$!
      until grep -qs '  step 3/' "$0"; do kill -0 $p || exit 99; done
      kill -HUP $p; kill -HUP $p; wait $p]], out .. "/log", process.program(),
      table.unpack(words("ranks", "-n", "2", "steps=100000")))
    local log = base.read_file(out .. "/log")
    assert.equal(129, done.exit, log)
    assert.matches("ended as signal 1 %(Hangup%) asked", log)
    local _, steps, lines = run_of "ranks"
    assert.same({ lines.stop[1].step }, steps)
  end)
end)

describe("a run whose log has lost its reader", function()
  for _, ranks in ipairs { "1", "2" } do
    it(("trains to its end, records it once in its journal and is not restarted: %s"):format(
      ranks), function()
      local name = "head" .. ranks
      local done = shell([[{ "$@" 2>/dev/null; echo $? > "$0"; } | head -n 1]], out .. "/code",
        process.program(), table.unpack(words(name, "-n", ranks)))
      assert.equal("0\n", base.read_file(out .. "/code"), done.output)
      local _, steps, lines = run_of(name)
      assert.same({ 60 }, steps)
      assert.equal(1, #lines.output)
      assert.matches("^standard output has no reader any more %(Broken pipe%)",
        lines.output[1].text)
      assert.equal(1, #lines["end"])
    end)
  end

  it("records it on other hosts, too", function()
    local hosts <close> = cluster.new "one addr=127.0.0.1\ntwo addr=127.0.0.1\n"
    -- the run is asked to end once the line exists
    local done = shell([[
      rm -f "$0/code"; { "$@" 2>/dev/null & p=$!
        until grep -qs '"kind":"output"' "$0"/*-far/journal.jsonl; do kill -0 $p || exit 99; done
        kill -TERM $p; wait $p; echo $? > "$0/code"; } | head -n 1]], out, "/usr/bin/env",
      "MOONREEL_RSH=" .. hosts.path .. "/rsh", process.program(), table.unpack(words("far",
        "--hostfile", hosts.path .. "/hosts", "steps=3000")))
    assert.equal("143\n", base.read_file(out .. "/code"), done.output)
    local _, steps, lines = run_of "far"
    assert.equal(1, #lines.output)
    assert.same({ lines.stop[1].step }, steps)
  end)

  it("saves and ends soon when its launcher has ended, too", function()
    local done = shell([[mkfifo "$0"
      "$@" > "$0" 2>&1 & p=$!
      while read -r line; do case $line in *"  step 3/"*) break ;; esac; done < "$0"
      ranks=$(cat /proc/$p/task/$p/children); kill -9 $p
      for r in $ranks; do
        case $(cat /proc/$r/comm 2>/dev/null) in moonreel-guard) ;; *) tail --pid=$r -f /dev/null ;; esac
      done]], out .. "/pipe",
      process.program(), table.unpack(words("lost", "-n", "2", "steps=100000")))
    assert.equal(0, done.exit, done.output)
    local _, steps, lines = run_of "lost"
    assert.same({ lines.stop[1].step }, steps)
  end)
end)

describe("a run on several hosts whose launcher is killed", function()
  it("ends after a checkpoint of its last step, though every rank holds a part", function()
    local hosts <close> = cluster.new "one addr=127.0.0.1\ntwo addr=127.0.0.1\n"
    local done = shell([[
      "$@" > /dev/null 2>&1 & p=$!
      until grep -qs '"kind":"step"' "$0"/*-killed/journal.jsonl; do kill -0 $p || exit 99; done
      helpers=$(cat /proc/$p/task/$p/children); kill -9 $p
      for h in $helpers; do tail --pid=$h -f /dev/null; done]], out, "/usr/bin/env",
      "MOONREEL_RSH=" .. hosts.path .. "/rsh", process.program(), table.unpack(words("killed",
        "--hostfile", hosts.path .. "/hosts", "plugin_config.zero_stage=1",
        "steps=100000")))
    assert.equal(0, done.exit, done.output)
    local _, steps, lines = run_of "killed"
    assert.same({ lines.stop[1].step }, steps)
  end)
end)

describe("saves by time", function()
  it("come between steps, and all ranks make the same", function()
    for _, ranks in ipairs { "1", "2" } do
      local name = "late" .. ranks
      local done = start('exec "$@" 2>&1', "", words(name, "-n", ranks, "ckpt_minutes=1e-9",
        "steps=12", "keep_n_latest=-1"))
      assert.equal(0, done.exit, done.output)
      assert.matches("  checkpoints: 1e%-09 minutes after the last one %(ckpt_minutes%), at the "
        .. "end; ", done.output)
      local _, steps, lines = run_of(name)
      -- the first is due at once; while it is written, no other begins
      assert.same({ 12, 1 }, { steps[1], steps[#steps] })
      assert.equal(#steps, #lines.save)
    end
  end)

  it("do not happen with ckpt_minutes = 0", function()
    local done = start('exec "$@" 2>&1', "", words("never", "ckpt_minutes=0", "steps=12"))
    assert.equal(0, done.exit, done.output)
    assert.matches("  checkpoints: only at the end", done.output)
    assert.same({ 12 }, (select(2, run_of "never")))
  end)
end)
