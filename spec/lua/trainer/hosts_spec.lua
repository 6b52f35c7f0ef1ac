--- The state of a run's hosts in its journal and log. A driver that does not answer delays no step.
-- Covers: lua/moonreel/trainer/hosts.lua lua/moonreel/recipe/fields/life.lua
local demo_data = dofile "spec/support/demo_data.lua"
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local hosts = require "moonreel.trainer.hosts"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local scalars = require "moonreel.trackers.scalars"

local out, dir = demo_data.scratch(), nil
setup(function() dir = folder.new() end)
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
  dir:remove()
end)

-- trains until the journal has a given line, at most this many steps
local function train(name, scene, ranks, ...)
  local words = { "/usr/bin/env", "MOONREEL_NVML=" .. process.program():gsub("[^/]*$", "")
    .. "nvml_scene.so", "NVML_SCENE=" .. scene, "/bin/sh", "-c", 'exec "$0" "$@" 2>&1',
    process.program() }
  for _, word in ipairs { "train", "tiny/demo", "-n", ranks, "dataset.data_path="
    .. demo_data.path(), "outputs=" .. out, "name=" .. name, "threads=1", "num_workers=1",
    "model.depth=1", "model.hidden_size=16", "model.num_heads=1", "text_encoder.width=16",
    "text_encoder.num_heads=1", "text_encoder.rows=64", "model.caption_channels=16",
    "log_every=1000", 'bucket_config={["32px"]={[1]={1.0,2},[6]={1.0,1}}}', ... } do
    words[#words + 1] = word
  end
  local done = process.run(words, "", { deadline_s = 600, output_bytes = 1 << 20 })
  assert.equal(0, done.exit, done.output)
  return done.output
end

local function lines(name)
  local list = {}
  for entry in run.entries(demo_data.run_dir(out, name)) do
    list[#list + 1] = entry.kind == "node" and entry or nil
  end
  return list
end

describe("the hosts of a run", function()
  it("are in its journal, log and charts", function()
    local said = train("two", "gpus=1 ecc=2", "2", "steps=1200", "hosts.every=0.05")
    local list = lines "two"
    assert.is_true(#list > 1, said)
    local host = list[1].host
    for _, line in ipairs(list) do
      assert.equal(host, line.host)
      assert.same({ "GPU 0: 2 memory errors" }, line.faults)
      assert.near(123.456, line.scalars[("node/%s/gpu0/power_w"):format(host)], 1e-9)
      assert.equal("node/" .. host, scalars.of_line(line)[1][1]:match "^node/[^/]+")
    end
    -- once, because the state does not change
    local _, times = said:gsub("host %S+: GPU 0: 2 memory errors\n", "")
    assert.equal(1, times, said)
    local function logged(...)
      return select(2, demo_data.moonreel("log", demo_data.run_dir(out, "two"), ...):gsub(
        "host %S+: 1 GPUs, 123 W; at most 61 C; at least 1755 MHz; load [%d.]+, %S+ %S+ of memory "
        .. "free; GPU 0: 2 memory errors", ""))
    end
    assert.equal(1, logged())
    assert.equal(#list, logged("--every", "1"))
  end)

  it("are left out of a run that ends before, or whose recipe turns them off", function()
    train("short", "gpus=1", "1", "steps=2")
    train("never", "gpus=1", "1", "steps=200", "hosts.every=0")
    assert.same({}, lines "short")
    assert.same({}, lines "never")
  end)

  it("delay no step when their driver does not answer", function()
    train("stuck", "stuck", "1", "steps=300", "hosts.every=0.05")
    assert.same({}, lines "stuck")
  end)
end)

describe("the file that a host's recorder writes", function()
  local report, said, r
  before_each(function()
    report, said = {}, {}
    base.make_dir(dir.path .. "/x/log")
    r = { dir = dir.path .. "/x", fence = 3, step = 5, settings = { hosts = { every = 1e-9 } },
      team = { leads = true }, hosts = { at = 0, seen = {}, faults = {}, begun = true },
      journal = { append = function(_, line) report[#report + 1] = line end },
      progress = { say = function(_, line) said[#said + 1] = line end } }
  end)
  after_each(function() os.execute("rm -r '" .. dir.path .. "/x'") end)

  local function look(name, line)
    dir:write("x/log/" .. name, type(line) == "table" and json.encode(line) or line)
    hosts.look(r)
  end
  local function state(number, faults)
    return { host = "a", number = number, fence = 3, wall = 7, scalars = { load = 1 },
      faults = faults }
  end

  it("is read once, and each change is reported", function()
    look("node-a.json", state(1, { "x" }))
    hosts.look(r)
    look("node-a.json", state(2, { "x" }))
    look("node-a.json", state(3))
    look("node-a.json", state(4))
    assert.equal(4, #report)
    assert.same({ kind = "node", host = "a", step = 5, wall = 7, scalars = { ["node/a/load"] = 1 },
      faults = { "x" } }, report[1])
    assert.same({ "host a: x", "host a: all faults are gone" }, said)
  end)

  it("is ignored when it is of another launch, torn or of another form", function()
    local other = state(1)
    other.fence = 2
    look("node-a.json", other)
    look("node-b.json", '{"fence":3,')
    look("node-c.json", { fence = 3, host = "c" })
    look("nodes.json", state(1))
    assert.same({}, report)
    -- other ranks do not read it
    r.team.leads = false
    look("node-a.json", state(1))
    assert.same({}, report)
  end)
end)
