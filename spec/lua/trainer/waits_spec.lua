--- How long ranks wait in a step, for data and for each other, and the sums of each host.
-- Covers: lua/moonreel/trainer/waits.lua lua/moonreel/trainer/micros.lua
-- lua/moonreel/runs/account.lua
local cluster = require "spec.support.cluster"
local demo_data = dofile "spec/support/demo_data.lua"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local waits = require "moonreel.trainer.waits"

describe("waits of ranks", function()
  it("count the time until the last rank joins each call, and the time for data", function()
    local list = {}
    waits.count(list, { 0, 0.25, 0 }, { 1, 2, 1.5 })
    assert.same({ { data_s = 0, others_s = 1 }, { data_s = 0.25, others_s = 0 },
      { data_s = 0, others_s = 0.5 } }, list)
    waits.count(list, { 0, 0.5, 0.125 }, { 3, 1, 3 })
    assert.same({ { data_s = 0, others_s = 1 }, { data_s = 0.5, others_s = 2 },
      { data_s = 0.125, others_s = 0.5 } }, list)
    assert.equal(0.5, waits.longest(list))
  end)

  it("are averages over the ranks of each host, in any order of ranks", function()
    local hosts = waits.hosts { "b", "a", "b" }
    assert.same({ { name = "b", ranks = 2 }, { name = "a", ranks = 1 } },
      { hosts[1], hosts[2] })
    assert.same({ data_s = { 0.25, 0.125 }, others_s = { 1.0, 0.0 } }, waits.by_host(hosts,
      { { data_s = 0.5, others_s = 2 }, { data_s = 0.125, others_s = 0 },
        { data_s = 0, others_s = 0 } }))
  end)
end)

-- a run whose rank 1 reads slowly, and whose rank 0 then computes for as long
local TRAIN = [[
local base, loop = require "moonreel.core.base", require "moonreel.trainer.loop"
local step = loop.step
function loop.step(r)
  if not r.slowed then
    r.slowed = true
    local late = r.team.leads and r.feed or r.loader
    local name = r.team.leads and "prepare" or "next"
    local was = late[name]
    late[name] = function(...)
      base.sleep(r.team.leads and 0.12 or 0.03)
      return was(...)
    end
  end
  return step(r)
end
os.exit(require("moonreel.cli.train").run { ... }, true)
]]
local STEPS <const> = 8

describe("a run of several hosts", function()
  local dir, out, shown
  setup(function()
    dir = cluster.new("one slots=1 addr=127.0.0.1\ntwo slots=1\n")
    out = dir.path .. "/runs"
    local script = dir:write("train.lua", TRAIN)
    local done = process.run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh", "/usr/bin/env",
      "MOONREEL_RSH=" .. dir.path .. "/rsh", process.program(), "--hostfile", dir.path .. "/hosts",
      script, "tiny/demo", "dataset.data_path=" .. demo_data.path(),
      "outputs=" .. out, "name=x", "steps=" .. STEPS, "threads=1", "num_workers=1",
      "model.depth=1", "model.hidden_size=16", "model.num_heads=1", "text_encoder.width=16",
      "text_encoder.num_heads=1", "text_encoder.rows=64", "model.caption_channels=16",
      'bucket_config={["32px"]={[6]={1.0,2}}}' }, "", { deadline_s = 600,
      output_bytes = 1 << 20 })
    assert(done.exit == 0, done.output)
    shown = demo_data.run_dir(out, "x")
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  it("writes the waits of each host's ranks in the lines of its steps", function()
    local hosts, n
    for line in run.entries(shown) do
      hosts = line.kind == "start" and line.hosts or hosts
      if line.kind == "step" then
        n = (n or 0) + 1
        local report = line.host_waits
        assert.is_true(report.data_s[2] >= 0.03, json.encode(line))
        assert.is_true(math.abs(line.data_wait_s - math.max(table.unpack(report.data_s))) < 1e-3)
        assert.is_true(report.others_s[2] > 0 or report.others_s[1] > 0)
      end
    end
    assert.same({ { name = "one", ranks = 1 }, { name = "two", ranks = 1 } }, hosts)
    assert.equal(STEPS, n)
  end)

  it("has a sum of times for each host", function()
    local by = {}
    for _, row in ipairs(json.decode(demo_data.moonreel("log", shown, "--time", "--json"))) do
      local host = row.host == json.null and "all" or row.host
      by[host] = by[host] or {}
      by[host][row.what] = row
    end
    local data, others = "waiting for data", "waiting for other ranks"
    assert.is_true(by.two[data].seconds >= 0.03 * STEPS)
    assert.is_true(by.two[others].seconds > by.one[others].seconds)
    assert.is_true(by.one.training.seconds > by.two.training.seconds)
    for _, what in ipairs { data, others, "training" } do
      assert.near((by.one[what].seconds + by.two[what].seconds) / 2, by.all[what].seconds, 1e-6)
    end
    for _, host in ipairs { "one", "two" } do
      assert.near(by.all["whole run"].seconds, by[host]["whole run"].seconds, 1e-6)
    end
    assert.matches("\n\nhost +time +training +data +other ranks +saving .*\none  .*\ntwo  .*\n$",
      demo_data.moonreel("log", shown, "--time"))
  end)
end)
