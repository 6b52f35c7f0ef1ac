--- Trackers of a run that trains.
-- Covers: lua/moonreel/trainer/tracking.lua
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local tracked = require "spec.support.tracked"
local trackers = require "moonreel.trackers"

describe("a run with trackers", function()
  local out = demo_data.scratch()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  -- `before`: words in front of the program on the command line
  local function start(before, name, ...)
    local words = { process.program(), "train", "tiny/demo",
      "dataset.data_path=" .. demo_data.path(), "outputs=" .. out, "name=" .. name,
      "warmup_steps=3", "ckpt_every=3", "threads=2", "num_workers=1", "model.depth=1",
      "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32", ... }
    return process.run(table.move(words, 1, #words, #before + 1, before), "",
      { deadline_s = 600, output_bytes = 1 << 20 })
  end
  local function train(...) return start({}, ...) end
  local function lines(dir, kind)
    local list = {}
    for line in run.entries(dir) do
      list[#list + 1] = line.kind == kind and line or nil
    end
    return list
  end
  local function copy(dir, name)
    assert.is_true(os.execute(("cp -r '%s/%s' '%s.%s'"):format(dir, name, dir, name)))
    base.remove_dir(dir .. "/" .. name)
  end
  local function same(dir, name)
    return os.execute(("diff -r '%s/%s' '%s.%s'"):format(dir, name, dir, name))
  end

  it("writes the same bytes as an export after it, also after a resume", function()
    local first = train("a", "steps=5", "tensorboard=true", "wandb=true", "wandb_project=p")
    assert.equal(0, first.exit, first.output)
    local dir = demo_data.run_dir(out, "a")
    assert.same({ tensorboard = true, wandb = { project = "p", log = "0.31" } },
      lines(dir, "start")[1].trackers)
    local second = train("a", "steps=8", "load=latest")
    assert.equal(0, second.exit, second.output)
    assert.equal(0, #lines(dir, "tracker"))
    for _, name in ipairs { "tensorboard", "wandb" } do
      copy(dir, name)
      assert.equal(2, trackers.export(dir, name).written)
      assert.is_true(same(dir, name), name)
    end
  end)

  it("continues when a tracker cannot be written, and reports it once", function()
    local first = train("b", "steps=3")
    assert.equal(0, first.exit, first.output)
    local dir = demo_data.run_dir(out, "b")
    assert.is_false(base.exists(dir .. "/tensorboard"))
    assert.is_nil(lines(dir, "start")[1].trackers)
    base.replace_file(dir .. "/tensorboard", "in the way")
    local second = train("b", "steps=8", "load=latest", "tensorboard=true", "wandb=true")
    assert.equal(0, second.exit, second.output)
    local report = lines(dir, "tracker")
    assert.equal(1, #report)
    assert.equal("tensorboard", report[1].tracker)
    local _, times = second.output:gsub("tensorboard cannot be written: ", "")
    assert.equal(1, times, second.output)
    assert.matches("try: moonreel log %S+ %-%-export tensorboard, later", second.output)
    assert.equal(2, #base.list_dir(dir .. "/wandb") - 1) -- written.json
    os.remove(dir .. "/tensorboard")
    assert.equal(2, trackers.export(dir, "tensorboard").written)
  end)

  it("continues when a tracker's disk is full, and adds all missing lines later", function()
    local first = train("c", "steps=3")
    assert.equal(0, first.exit, first.output)
    local dir = demo_data.run_dir(out, "c")
    base.make_dir(dir .. "/tensorboard")
    -- a disk that is unmounted when the run ends
    local second = start({ "/usr/bin/unshare", "-m", "/bin/sh", "-c", ("mount -t tmpfs -o size=16k "
      .. "none '%s/tensorboard' || exit 99; exec \"$@\" 2>&1"):format(dir), "sh" }, "c", "steps=40",
      "load=latest", "tensorboard=true")
    if second.exit == 99 or second.output:find("unshare", 1, true) then
      return pending "no file system of its own can be mounted here"
    end
    assert.equal(0, second.exit, second.output)
    local report = lines(dir, "tracker")
    assert.equal(1, #report)
    assert.matches("No space left on device", report[1].text)
    local _, times = second.output:gsub("tensorboard cannot be written: [^\n]*No space left", "")
    assert.equal(1, times, second.output)
    assert.equal(40, #lines(dir, "step"))
    assert.equal(2, trackers.export(dir, "tensorboard").written)
    local steps = 0
    for _, name in ipairs(base.list_dir(dir .. "/tensorboard")) do
      local text = base.read_file(dir .. "/tensorboard/" .. name)
      for _, event in ipairs(name ~= "written.json" and tracked.events(text) or {}) do
        steps = steps + (event.values.loss and 1 or 0)
      end
    end
    assert.equal(40, steps)
  end)
end)
