--- Calls of an encoder: state from call to call, sums of a first sweep in a second one, parts that
-- are loaded repeatedly, and the plan of all that.
-- Covers: lua/moonreel/encoder/init.lua lua/moonreel/encoder/schedule.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local encoder = require "moonreel.encoder"
local fails = require "spec.support.fails"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local schedule = require "moonreel.encoder.schedule"

-- a family with one part without weights, or with `parts`, whose calls are a list
local function family(calls, parts)
  return { calls = function() return calls end,
    parts = function() return parts or { { name = "all", declare = function() end } } end }
end

local function call(key, takes, gives, nodes)
  for _, take in pairs(takes) do
    take.dtype, take.shape = "f32", { take[3], 2 }
  end
  return { part = "all", key = key, takes = takes, gives = gives, nodes = nodes }
end

local function add(_, _, io) return { out = (ops.copy(io.x + io.more)) } end

-- rows of two equal numbers
local function rows(...)
  local list = {}
  for i, x in ipairs { ... } do
    list[2 * i - 1], list[2 * i] = x, x
  end
  return T.from({ #list // 2, 2 }, list)
end

-- first number of each row of y, after a run on a device
local function result(calls, values, device, n)
  local one <close> = encoder.new(family(calls), { device = device, dtype = "f32" })
  local before = one.list[1].exec:waits().all
  local y, waits = T.new("f32", { n, 2 }), 0
  one:run(calls, values, { y = true }, function(prog, output, first, count)
    waits = one.list[1].exec:waits().all - before
    local some <close> = prog:get(output)
    y:slice(0, first, first + count):copy_from(some)
    before = one.list[1].exec:waits().all - waits
  end)
  local out, all = {}, y:totable()
  for i = 1, n do
    out[i] = all[2 * i - 1]
  end
  return out, waits
end

describe("calls of an encoder", function()
  for _, name in ipairs { "cpu", "shadow" } do
    local device = E.device(name, 1)

    it("pass state from one to the next, with a separate first one, on " .. name, function()
      -- running sums: the first frame by itself, then two at a time
      local function sums(g, _, io)
        local x = io.x
        local last = io.state and x:slice(0, 0, 1) + io.state or x:slice(0, 0, 1)
        local all, n = { last }, x.shape[1]
        for i = 1, n - 1 do
          all[i + 1] = all[i] + x:slice(0, i, i + 1)
        end
        local out = n > 1 and G.concat(all, 0) or ops.copy(last)
        return { out = out, state = ops.copy(all[n]) }, g
      end
      local calls = { call("first", { x = { "x", 0, 1 } },
        { out = { "y", 0, 1 }, state = { "state", 0, 1 } }, sums) }
      for first = 1, 5, 2 do
        calls[#calls + 1] = call("two", { x = { "x", first, 2 }, state = { "state", 0, 1 } },
          { out = { "y", first, 2 }, state = { "state", 0, 1 } }, sums)
      end
      local got, waits = result(calls, { x = rows(1, 2, 3, 4, 5, 6, 7) }, device, 7)
      assert.same({ 1, 3, 6, 10, 15, 21, 28 }, got)
      assert.equal(0, waits)
    end)

    it("use the sums of a first sweep in a second one, on " .. name, function()
      local calls = {}
      for first = 0, 4, 2 do
        local takes = { x = { "x", first, 2 }, more = first > 0 and { "sum", 0, 1 } or nil }
        calls[#calls + 1] = call(first > 0 and "sum" or "first", takes,
          { out = { "sum", 0, 1 } }, function(_, _, io)
            local two = ops.sum(io.x, { axes = { 0 }, keep = true })
            return (ops.copy(io.more and two + io.more or two))
          end)
      end
      for first = 0, 4, 2 do
        calls[#calls + 1] = call("minus", { x = { "x", first, 2 }, sum = { "sum", 0, 1 } },
          { out = { "y", first, 2 } },
          function(_, _, io) return (ops.copy(io.x - io.sum:expand { 2, 2 })) end)
      end
      assert.same({ -20, -19, -18, -17, -16, -15 },
        (result(calls, { x = rows(1, 2, 3, 4, 5, 6) }, device, 6)))
    end)

    it("keep values in host memory that no program has a place for, on " .. name, function()
      -- the second reads rows of both runs of the first, the third values from before both
      local calls = { call("add", { x = { "x", 0, 2 }, more = { "b", 0, 2 } },
          { out = { "u", 0, 2 } }, add),
        call("add", { x = { "x", 2, 2 }, more = { "b", 0, 2 } }, { out = { "u", 2, 2 } }, add),
        call("add", { x = { "u", 1, 2 }, more = { "u", 2, 2 } }, { out = { "y", 0, 2 } }, add),
        call("add", { x = { "u", 0, 2 }, more = { "x", 0, 2 } }, { out = { "y", 2, 2 } }, add) }
      assert.same({ 12 + 23, 23 + 14, 11 + 1, 12 + 2 }, (result(calls, { x = rows(1, 2, 13, 4),
        b = rows(10, 10) }, device, 4)))
      -- x of the third and of the last, from rows that the second run would overwrite
      assert.equal(2 * 2 * 2 * 4, schedule.held(calls, function(c) return c.key end))
    end)
  end

  it("have values of their own, which the caller's values override", function()
    local calls = { call("add", { x = { "x", 0, 2 }, more = { "b", 0, 2 } },
      { out = { "y", 0, 2 } }, add) }
    calls.values = { x = rows(7, 7), b = rows(10, 20) }
    assert.same({ 11, 22 }, (result(calls, { x = rows(1, 2) }, E.device("cpu", 1), 2)))
  end)

  it("load the weights of a repetition once for all calls that use them in sequence", function()
    local loaded = {}
    local parts = { { name = "all", repeats = 3, declare = function(params)
      nn.scope(params):add("w", { 2 }, { kind = "zeros" })
      return "w"
    end } }
    local calls = {}
    for i = 0, 2 do
      for k = 1, 2 do
        calls[#calls + 1] = call("mul", { x = { "x" .. k, 0, 1 } }, { out = { i < 2 and "x" .. k
          or "y", i < 2 and 0 or k - 1, 1 } },
          function(g, w, io) return (ops.copy(io.x + g:param(w))) end)
        calls[#calls].index = i
      end
    end
    local one <close> = encoder.new(family(calls, parts), { device = E.device("cpu", 1),
      dtype = "f32", load = function(part, i)
        loaded[#loaded + 1] = i
        part.exec:set_param("w", "w", T.from({ 2 }, { 10 ^ i, 10 ^ i }))
      end })
    local got = {}
    one:run(calls, { x1 = rows(1), x2 = rows(2) }, { y = true }, function(prog, output, first)
      got[first] = prog:get(output):totable()[1]
    end)
    assert.same({ [0] = 112, 113 }, got)
    assert.same({ 0, 1, 2 }, loaded)
    assert.equal(one.list[1].exec:regions()[1].bytes, one:weight_bytes())
  end)

  it("are planned without a device: each program once, with its runs", function()
    local calls = { call("add", { x = { "x", 0, 2 }, more = { "x", 0, 2 } },
        { out = { "u", 0, 2 } }, add),
      call("add", { x = { "u", 0, 2 }, more = { "x", 0, 2 } }, { out = { "y", 0, 2 } }, add),
      call("wide", { x = { "u", 0, 2 }, more = { "y", 0, 2 } }, { out = { "y", 0, 2 } }, add) }
    local device = E.device("cpu", 1)
    local plan <close> = encoder.new(family(calls), { dtype = "f32",
      device = { facts = device:facts() } })
    local there <close> = encoder.new(family(calls), { dtype = "f32", device = device })
    local rows_of = plan:plan("encode", {})
    assert.same({ 2, 1 }, { rows_of[1].runs, rows_of[2].runs })
    -- one arena for both, inputs and results of each
    local m, n = rows_of[1].prog:memory(), rows_of[2].prog:memory()
    assert.equal(math.max(m.arena, n.arena) + m.inputs + m.results + m.consts + n.inputs
      + n.results + n.consts, encoder.working_bytes(rows_of))
    assert.equal(encoder.working_bytes(there:plan("encode", {})), encoder.working_bytes(rows_of))
  end)

  it("are refused when a call reads rows that no call before it writes", function()
    fails("MR_E_INTERNAL", "calls: input 'x' takes rows 1 to 3 of 'u', of which calls before it "
      .. "give some, but not row 3", schedule.of, { call("a", {}, { out = { "u", 0, 3 } }),
        call("b", { x = { "u", 1, 3 } }, {}) })
  end)

  it("that have another form are refused before they run", function()
    local one = encoder.new(family {}, { device = E.device("cpu", 1), dtype = "f32" })
    local function refused(pattern, calls, wanted)
      fails("MR_E_USAGE", pattern, one.run, one, calls, { x = rows(1), more = rows(1) },
        wanted or { y = true })
    end
    -- a good call, changed
    local function changed(changes, list)
      local it = call("k", { x = { "x", 0, 1 }, more = { "more", 0, 1 } }, { out = { "y", 0, 1 } },
        add)
      for name, value in pairs(changes) do
        it[name] = value ~= "none" and value or nil
      end
      list = list or {}
      list[#list + 1] = it
      return list
    end
    refused("calls%(%) of an encoder returned nil; expected a list", nil)
    refused("calls%(%) of an encoder returned no call", {})
    refused("call 1 of an encoder: its part is 'al'; expected one of: all", changed { part = "al" })
    for _, name in ipairs { "key", "takes", "gives", "nodes" } do
      refused("call 1 of an encoder: expected {part, key", changed { [name] = "none" })
    end
    refused("takes%.x: expected {value, first row", changed { takes = { x = { "x", -1 } } })
    refused("gives%.out: expected {value, first row, rows}", changed { gives = { out = { "y" } } })
    refused("call 2 of an encoder: its inputs are x f32 %[1, 2%]; a call before it has the same "
      .. "key 'k', and inputs more f32 %[1, 2%], x f32 %[1, 2%]", changed({ takes = { x = { "x", 0,
        dtype = "f32", shape = { 1, 2 } } } }, changed {}))
    refused("no call of an encoder gives 'z'; values that calls give: y", changed {}, { z = true })
    refused("call 1 of an encoder: input 'x' takes 'w', which no call before it gives; values "
      .. "without a call: more, x", changed { takes = { x = { "w", 0, dtype = "f32",
        shape = { 1, 2 } }, more = { "more", 0, dtype = "f32", shape = { 1, 2 } } } })
    for _, nodes in ipairs { function() end, function() return {} end,
        function() return { out = 3 } end } do
      refused("call 'n%d' of an encoder gives 'out', but its nodes return %a+ for it",
        changed { nodes = nodes, key = "n1" })
    end
    one:close()
  end)
end)
