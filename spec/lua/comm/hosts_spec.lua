--- Host files of four grammars, host lists of Slurm, and filters. A mistake is reported with its
-- line.
local base = require "moonreel.core.base"
local fails = dofile "spec/support/fails.lua"
local hosts = require "moonreel.comm.hosts"

-- "name:slots" of each host
local function brief(list)
  local out = {}
  for i, host in ipairs(list) do
    out[i] = host.name .. (host.slots and ":" .. host.slots or "")
  end
  return table.concat(out, " ")
end
local function parsed(text) return brief(hosts.parse(text, "hosts")) end
local function refused(pattern, text)
  fails("MR_E_USAGE", "hosts:" .. pattern, hosts.parse, text, "hosts")
end

describe("a host file", function()
  it("has one name per line, as Colossal-AI reads it", function()
    assert.equal("node1 node2 10.0.0.3", parsed "node1\n\nnode2\r\n  10.0.0.3\n")
  end)

  it("has slots, as DeepSpeed and Open MPI read it", function()
    assert.equal("a:4 b:2 c:1", parsed "# all\na slots=4\nb slots = 2 max_slots=8 # b\nc:1")
    assert.equal("a:6 b:1", parsed "a slots=4\nb slots=1\na slots=2")
    assert.equal("a:4", parsed "a slots=4\nb slots=2\n^b")
    assert.equal("a:4", parsed "^b\na slots=4\nb slots=2")
  end)

  it("has slots after a colon, as MPICH reads it", function()
    assert.equal("a:4 b", parsed "a:4 binding=core\nb ifname=eth1")
  end)

  it("has host lists as Slurm writes them", function()
    assert.equal("n01:8 n02:8 n03:8 n7:8 login", parsed "n[01-03,7] slots=8\nlogin")
    assert.equal("a1b08 a1b09 a1b10 a3b08 a3b09 a3b10 c", parsed "a[1,3]b[08-10],c")
  end)

  it("has addresses, ports and the commands that reach a host", function()
    local list = hosts.parse("[fe80::1]:2 port=2222\n::1 slots=3\nb addr=10.0.0.2 max-slots=4",
      "hosts")
    assert.equal("fe80::1:2 ::1:3 b", brief(list))
    assert.same({ 2222, "10.0.0.2", 4, 3 }, { list[1].port, list[3].addr, list[3].max_slots,
      list[3].line })
  end)

  it("has users of remote shells, addresses in brackets and Windows line ends", function()
    local list = hosts.parse("\xEF\xBB\xBFroot@10.0.0.2 slots=2 addr=[fd00::9]\nme.2@n[1-2]:3\n"
      .. "_x@[fe80::1]:4", "hosts")
    assert.equal("10.0.0.2:2 n1:3 n2:3 fe80::1:4", brief(list))
    assert.same({ "root", "me.2", "me.2", "_x", "fd00::9" }, { list[1].user, list[2].user,
      list[3].user, list[4].user, list[1].addr })
    assert.equal("10.0.0.2", brief(hosts.filter(list, "10.0.0.2")):match "^[^:]+")
    refused("1: '@10.0.0.2' is not a host name", "@10.0.0.2")
    refused("1: '%-o@a' is not a host name", "-o@a")
    refused("1: 'b@c' is not a host name", "a@b@c")
    refused("1: '%[10%.0%.0%.2' is not a host name", "a addr=[10.0.0.2")
    refused("2: '\\xef\\xbb\\xbfb' is not a host name", "a\n\xEF\xBB\xBFb")
  end)

  it("is refused with the number of the line that is wrong", function()
    refused(" there are no hosts; expected one per line", "# nothing\n")
    refused(" there are no hosts; expected", "a\n^a")
    refused("2: '%-oProxyCommand=x' is not a host name", "a\n-oProxyCommand=x")
    refused("1: 'a;b' is not a host name", "a;b")
    refused("1: 'a%$%(b%)' is not a host name", "a$(b)")
    refused("1: 'file'; expected slots=N", "host file")
    refused("3: host 'a' is already on line 1; try: slots=N on both lines", "a\nb\na")
    refused("2: host 'a' is already on line 1", "a slots=2\na")
    refused("1: slots=0; expected a whole number from 1 to 65535", "a slots=0")
    refused("1: slots=99999999999", "a slots=99999999999")
    refused("1: port=70000; expected a whole number from 1 to 65535", "a port=70000")
    refused("1: 'slot=4'; expected slots=N, max_slots=N, port=P or addr=IP", "a slot=4")
    refused("1: slots is given twice", "a slots=1 slots=2")
    refused("1: slots are given twice", "a:2 slots=2")
    refused("1: slots=8, max_slots=4: expected slots of at most max_slots", "a slots=8 max_slots=4")
    refused("1: '%+n0' refers to hosts of a resource manager by number", "+n0")
    refused("1: '%[3%-1%]' is not a list of numbers", "n[3-1]")
    refused("1: more than 65536 hosts", "n[0-65536]")
    refused("1: a host name of 254 bytes; expected at most 253", ("a"):rep(254))
    refused("1: a line of 5001 bytes", ("a"):rep(5001))
    refused("1: 'x' after an address; expected :SLOTS", "[::1]x")
    refused("1: '%-h' is not a host name", "a addr=-h")
    fails("MR_E_USAGE", "host file /no/such cannot be read", hosts.read, "/no/such")
  end)

  it("is read, or refused by its line, for any text", function()
    local pieces = { "a", "n[1-3]", "n[", "]", ":", "4", "slots=", " ", "=", "#", "\n", "-", "^",
      "[::1]", ",", "max_slots=9", "port=1", "\0", "\27[2J", "é", "+e", "x[1-9,2]", "addr=", "\r",
      ("z"):rep(260) }
    local drawn = 0
    local function draw(n)
      drawn = drawn + 1
      return math.floor(base.random_uniform(11, "hosts", drawn, 0, 0) * n) + 1
    end
    for _ = 1, 3000 do
      local text = {}
      for i = 1, draw(12) do
        text[i] = pieces[draw(#pieces)]
      end
      text = table.concat(text)
      local good, found = pcall(hosts.parse, text, "hosts")
      if good then
        local seen = {}
        assert.is_true(#found > 0 and #found <= 65536)
        for _, host in ipairs(found) do
          assert.matches("^[%w._:][%w._:-]*$", host.name)
          assert.is_nil(seen[host.name], text)
          seen[host.name] = true
          assert.is_true(math.type(host.slots or 1) == "integer" and (host.slots or 1) > 0)
        end
      else
        assert.equal("MR_E_USAGE", found.code, tostring(found))
        assert.matches("hosts:", found.message)
        assert.is_nil(found.message:find("[%z\1-\9\11-\31\127]"), found.message)
        assert.is_true(#found.message < 500)
      end
    end
  end)
end)

describe("host lists of Slurm", function()
  it("are expanded without scontrol", function()
    assert.same({ "node001", "node002", "node010", "gpu" }, hosts.expand "node[001-002,010],gpu")
    assert.same({ 8, 8, 8, 4 }, hosts.tasks "8(x3),4")
    fails("MR_E_USAGE", "SLURM_TASKS_PER_NODE: tasks=x", hosts.tasks, "8,x")
    fails("MR_E_USAGE", "'' is not a host name", hosts.expand, "a,,b")
  end)
end)

describe("filters of hosts", function()
  local list
  before_each(function() list = hosts.parse("a slots=4\nb slots=4\nn[1-2] slots=2", "hosts") end)
  local function left(include, exclude) return brief(hosts.filter(list, include, exclude)) end

  it("keep or leave out names, in the order of the list", function()
    assert.equal("a:4 b:4 n1:2 n2:2", left())
    assert.equal("a:4 n2:2", left("n2,a"))
    assert.equal("b:4 n1:2", left(nil, "a,n2"))
    assert.equal("a:4 b:4", left(nil, "n[1-2]"))
  end)

  it("keep or leave out slots", function()
    assert.equal("a:2 n1:2", left("a:0,2@n1"))
    assert.same({ 0, 2 }, hosts.filter(list, "a:0,2")[1].devices)
    assert.equal("a:3 n1:2 n2:2", left(nil, "a:1@b"))
    assert.same({ 0, 2, 3 }, hosts.filter(list, nil, "a:1")[1].devices)
    assert.equal("a:4 b:4 n1:2 n2:2", brief(list))
  end)

  it("are refused when they name no host or slot of the list", function()
    fails("MR_E_USAGE", "expected only one of the two", hosts.filter, list, "a", "b")
    fails("MR_E_USAGE", "%-%-include: host 'n3' is not in the list, did you mean 'n1'",
      hosts.filter, list, "n3")
    fails("MR_E_USAGE", "%-%-exclude: leaves no host", hosts.filter, list, nil, "a,b,n1,n2")
    fails("MR_E_USAGE", "%-%-include: slot 0 of host 'a' is given twice", hosts.filter, list,
      "a:0,1,0")
    fails("MR_E_USAGE", "%-%-exclude: '' is not a slot of host 'a'; expected numbers, as in a:0,2",
      hosts.filter, list, nil, "a:0,,1")
    fails("MR_E_USAGE", "%-%-include: '' is not a slot of host 'a'", hosts.filter, list, "a:")
    fails("MR_E_USAGE", "%-%-include: there is no slot 4 on host 'a'; it has 4 slots, counted "
      .. "from 0",
      hosts.filter,
      list, "a:4")
    fails("MR_E_USAGE", "host 'a' is given twice", hosts.filter, list, "a,a")
    fails("MR_E_USAGE", "is not a host name", hosts.filter, list, "a;b")
    fails("MR_E_USAGE", "because its number of slots is unknown", hosts.filter,
      hosts.parse("a", "hosts"), nil, "a:0")
  end)
end)
