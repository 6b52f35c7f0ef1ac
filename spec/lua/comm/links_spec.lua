--- The speed of links between hosts: each pair is measured in both directions, and slow hosts or
-- links are named. spec/lua/cluster/hosts_spec.lua measures real links.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local links = require "moonreel.comm.links"
local process = require "moonreel.core.process"

-- the rate of each link in MB/s: a row for each sender
local function found(rate, hosts)
  local way = {}
  for i, row in ipairs(rate) do
    way[i] = {}
    for j, mb in ipairs(row) do
      row[j], way[i][j] = mb * 1e6, i == j and 0 or 0.001
    end
  end
  return { hosts = hosts or { "a", "b", "c", "d" }, rate = rate, way = way }
end

local function faults(rows)
  local list = {}
  for _, row in ipairs(rows) do
    list[#list + 1] = row.fault and row.host .. " " .. row.fault
  end
  return list
end

describe("links between hosts", function()
  it("are compared with the median rate", function()
    local rows, slowest = links.judge(found { { 0, 90, 100, 110 }, { 100, 0, 100, 100 },
      { 100, 120, 0, 80 }, { 100, 100, 40, 0 } })
    assert.same({}, faults(rows))
    assert.same({ "d", "c", 40e6, 100e6, false },
      { slowest.from, slowest.to, slowest.rate, slowest.usual, slowest.slow })
    assert.same({ "a", 100e6, 100e6, 0.001 },
      { rows[1].host, rows[1].sends, rows[1].receives, rows[1].way_s })
    assert.same({ 100e6, 120e6 / 2 + 80e6 / 2 }, { rows[3].receives, rows[3].sends })
  end)

  it("name a host that sends slowly", function()
    local rows, slowest = links.judge(found { { 0, 100, 100, 100 }, { 100, 0, 100, 100 },
      { 3, 2.5, 0, 3 }, { 100, 100, 100, 0 } })
    assert.same({ "c sends 3 MB/s, other hosts 100 MB/s" }, faults(rows))
    assert.equal("the slowest link between hosts, from c to b, carries 2.5 MB/s; 100 MB/s is usual",
      links.describe(slowest))
    assert.is_true(slowest.slow)
  end)

  it("name a host that receives slowly", function()
    local rows = links.judge(found({ { 0, 2, 1500 }, { 2000, 0, 1500 }, { 1500, 2.5, 0 } },
      { "x", "y", "z" }))
    assert.same({ "y receives 2.25 MB/s, other hosts 1.6 GB/s" }, faults(rows))
  end)

  it("name both of two hosts, because either may be the slow one", function()
    local rows = links.judge(found({ { 0, 3 }, { 100, 0 } }, { "x", "y" }))
    local text = "the slowest link between hosts, from x to y, carries 3 MB/s; 51.5 MB/s is usual"
    assert.same({ "x " .. text, "y " .. text }, faults(rows))
    assert.same({}, faults((links.judge(found({ { 0, 50 }, { 100, 0 } }, { "x", "y" })))))
  end)

  it("name a single slow link, but no host", function()
    local rows, slowest = links.judge(found { { 0, 100, 100, 100 }, { 100, 0, 20, 100 },
      { 100, 100, 0, 100 }, { 100, 100, 100, 0 } })
    assert.same({}, faults(rows))
    assert.same({ "b", "c", true }, { slowest.from, slowest.to, slowest.slow })
  end)

  it("are judged although some pairs were not measured", function()
    local rows, slowest = links.judge(found { { 0, 100, 0, 0 }, { 100, 0, 0, 0 },
      { 0, 0, 0, 100 }, { 0, 0, 80, 0 } })
    assert.same({}, faults(rows))
    assert.same({ 100e6, 80e6 }, { rows[1].sends, rows[4].sends })
    assert.equal(80e6, slowest.rate)
  end)
end)

describe("measuring links", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  -- the rates that ranks on hosts of these names measured; all ranks must report the same
  local function measured(names)
    local script = dir:write("ranks.lua", ([[
      local world = require("moonreel.comm").world { deadline_s = 60 }
      local json = require "moonreel.core.json"
      local found = require("moonreel.comm.links").measure(world, json.decode %q)
      require("moonreel.core.base").replace_file(arg[0] .. world:rank(), json.encode(found))
    ]]):format(json.encode(names)))
    local done = process.run({ "/bin/sh", "-c", 'exec "$@" 2>&1', "sh", process.program(), "-n",
      tostring(#names), script }, "", { deadline_s = 300 })
    assert.equal(0, done.exit, done.output)
    local first = base.read_file(script .. 0)
    for rank = 1, #names - 1 do
      assert.equal(first, base.read_file(script .. rank))
    end
    return json.decode(first)
  end

  it("measures all pairs in both directions, for any number of hosts", function()
    for _, names in ipairs { { "a", "b" }, { "a", "b", "b", "c", "a", "d", "e" },
      { "a", "b", "c", "c", "d" } } do
      local all, hosts, known = measured(names), {}, {}
      for _, name in ipairs(names) do
        hosts[#hosts + 1] = not known[name] and name or nil
        known[name] = true
      end
      assert.same(hosts, all.hosts)
      for i = 1, #hosts do
        for j = 1, #hosts do
          assert.equal(i ~= j, all.rate[i][j] > 0, ("%d %d"):format(i, j))
          assert.equal(i ~= j, all.way[i][j] > 0)
          assert.is_true(all.rate[i][j] < 1e12)
        end
      end
    end
  end)

  it("measures nothing when all ranks are on one host", function()
    assert.same({ "a" }, measured({ "a", "a", "a" }).hosts)
  end)

  it("measures at most 16 other hosts for each host", function()
    local names = {}
    for i = 1, 20 do
      names[i] = "h" .. i
    end
    local all = measured(names)
    for i = 1, 20 do
      local n = 0
      for j = 1, 20 do
        n = n + (all.rate[i][j] > 0 and 1 or 0)
      end
      assert.equal(16, n)
    end
  end)
end)
