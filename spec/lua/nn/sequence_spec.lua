--- Ranks that share tokens compute what one rank computes with all of them: results, and gradients
-- summed over the ranks.
-- MOONREEL_DEVICE names the device.
-- Covers: core/op/exchange.c core/op/ring_attention.c core/op/share.h core/comm/op_group.c
local base = require "moonreel.core.base"
local fails = dofile "spec/support/fails.lua"
local folder = require "spec.support.folder"
local layout = require "moonreel.comm.mesh"
local process = require "moonreel.core.process"
local rank_cases = require "spec.support.rank_cases"
local sequence = require "moonreel.nn.sequence"

-- Four ranks run cases of four ranks and fewer. A case has a name, ranks that exchange heads, ring,
-- rings, height and width of the latent; for attention alone tokens and a dtype.
local CASES = [[
local E, G, T = require "moonreel.core.exec", require "moonreel.core.graph",
  require "moonreel.core.tensor"
local cases, ops, sequence = require "spec.support.rank_cases", require "moonreel.core.op",
  require "moonreel.nn.sequence"
local models = { stdit = cases.stdit(), mmdit = cases.mmdit { depth = 1, fused_qkv = false } }
local names = { "q", "k", "v" }

-- output and gradients of attention alone over n tokens, text and image in one sequence; where keys are hidden
-- one sample sees few of them, the other none or, of text before an image, no text
local function attention(device, seq, n, dtype, masked)
  local g, shape = G.graph(), { 2, 1, n, 4, 8 }
  local a, b = 0, n
  if seq then
    a, b = seq:share(n)
  end
  local x, list, grads = {}, {}, {}
  for i, name in ipairs(names) do
    x[i] = g:input(name, dtype, { 2, 1, b - a, 4, 8 })
    list[i] = { name = name, shape = shape }
  end
  local hidden = masked == "len" or masked == "text"
  local how = { scale = 0.5, len = hidden and g:input("len", "i32", { 2 }) or nil,
    text = masked == "text" and n // 2 or 0 }
  local o = seq and seq:attend(g, x[1], x[2], x[3], n, how)
    or ops.attention(x[1], x[2], x[3], how.len or false, { scale = 0.5, text = how.text })
  local weight = g:input("weight", "f32", { 2, 1, b - a, 4, 8 })
  local back = g:backward((ops.sum((ops.cast(o, { dtype = "f32" })) * weight,
    { axes = { 0, 1, 2, 3, 4 } })), x)
  local all = { o, table.unpack(back) }
  for i, value in ipairs(all) do
    all[i] = seq and seq:gather(g, value, 2, n) or value
    g:output("out" .. i, all[i])
  end
  g:finish()
  local run <close> = E.new(device, nil, {})
  local prog = run:compile(g)
  for _, name in ipairs { "q", "k", "v", "weight" } do
    local t = cases.filled(name, shape):slice(2, a, b):clone()
    prog:set(name, name == "weight" and t or t:to(dtype))
  end
  if hidden then
    prog:set("len", T.from({ 2 }, { masked == "text" and n // 3 or 2 * n // 3, 0 }, "i32"))
  end
  prog:run()
  for i, name in ipairs(names) do
    grads[name] = prog:get("out" .. i + 1)
  end
  return prog:get "out1", grads, list
end

cases.run(function(_, heads, inner, outer) return heads * inner * outer end,
  function(at, kind, heads, inner, outer, a, b, more)
    local function ranks(groups)
      return sequence.new { rank = at.group:rank(), heads = heads, inner = inner, outer = outer,
        comm = at.group, groups = groups }
    end
    local function build(seq)
      if kind == "attention" then
        return attention(at.device, seq, a, b, more)
      end
      return cases.model(at.device, models[kind], { sequence = seq, height = a, width = b,
        recompute = more == "recompute" })
    end
    local want, want_grads = build(nil)
    at.world:reset_counts()
    local got, grads, list = build(ranks(more == "groups" and 2 or 1))
    local counts = at.world:counts()
    for _, p in ipairs(kind == "attention" and {} or list) do
      if grads[p.name] then
        at.group:all_reduce(grads[p.name])
      end
    end
    if more == "groups" then
      -- bit for bit what all heads together give
      local whole, whole_grads = build(ranks(1))
      assert(whole:bytes() == got:bytes(), at.name)
      for name, x in pairs(whole_grads) do
        assert(x:bytes() == grads[name]:bytes(), at.name)
      end
    end
    return { cases.norm(got:to "f32" - want:to "f32") / cases.norm(want),
      (cases.errors(grads, want_grads, list)), cases.sent(counts, "all_to_all"),
      cases.sent(counts, "shift") }
  end)
]]

local LIST = [[
heads by 2: stdit 2 1 1 6 6
heads by 4, uneven: stdit 4 1 1 5 7
heads by 4, a token: stdit 4 1 1 2 1
ring of 2: stdit 1 2 1 6 6
ring of 3: stdit 1 3 1 6 4 recompute
ring of 4, empty: stdit 1 4 1 2 3
heads by 2, ring of 2: stdit 2 2 1 5 7 recompute
circles: stdit 1 2 2 5 7
MMDiT, heads by 2: mmdit 2 1 1 4 5
MMDiT, heads by 4: mmdit 4 1 1 5 3 recompute
MMDiT, ring of 3: mmdit 1 3 1 6 4
MMDiT, ring of 4, text alone: mmdit 1 4 1 2 1
MMDiT, both: mmdit 2 2 1 5 7 recompute
MMDiT, circles: mmdit 1 2 2 5 7
joint, heads by 4: attention 4 1 1 23 f32
joint, ring of 3: attention 1 3 1 23 f32
joint, ring of 4, one key: attention 1 4 1 5 f32
joint, circles: attention 1 2 2 40 f32
joint, three circles: attention 1 1 3 22 f32
joint, both: attention 2 2 1 41 f32
joint, long: attention 1 2 1 150 f32
joint, bf16: attention 1 3 1 40 bf16
two groups, heads by 2: attention 2 1 1 23 f32 groups
two groups, both: attention 2 2 1 41 f32 groups
two groups, bf16: attention 2 1 1 40 bf16 groups
hidden, heads by 4: attention 4 1 1 23 f32 len
hidden, ring of 3: attention 1 3 1 23 f32 len
hidden, ring of 4, empty: attention 1 4 1 3 f32 len
hidden, three circles: attention 1 1 3 22 f32 len
hidden text, heads by 2: attention 2 1 1 23 f32 text
hidden text, ring of 4, a key each: attention 1 4 1 5 f32 text
hidden text, circles: attention 1 2 2 40 f32 text
hidden text, both: attention 2 2 1 41 f32 text
hidden text, long: attention 1 2 1 150 f32 text
hidden text, bf16: attention 1 3 1 40 bf16 text
]]

describe("nn.sequence", function()
  local dir, done, errors
  setup(function()
    dir = folder.new()
    done, errors = rank_cases.start(dir, CASES, LIST)
  end)
  teardown(function() dir:remove() end)

  for name, how in LIST:gmatch "([^\n]+): ([^\n]*)\n" do
    it("computes what one rank computes: " .. name, function()
      assert.equal(0, done.exit, done.output)
      local row, half = errors[name], how:find "bf16" ~= nil
      assert.is_table(row, done.output)
      for at = 1, #row, 4 do
        assert.is_true(row[at] <= (half and 1e-2 or 1e-5), "forward off by " .. row[at])
        assert.is_true(row[at + 1] <= (half and 2e-2 or 1e-4), "gradient off by " .. row[at + 1])
      end
    end)
  end

  it("sends the bytes of the formulas", function()
    assert.equal(0, done.exit, done.output)
    -- 9 cells of a frame, 3 frames of 2 clips, 32 wide: rank 0 has 5 of them. It sends half the
    -- heads of its q, k and v, and half those of o for the other's 4 cells; the same in the
    -- backward pass.
    local cell, all = 3 * 2 * 32 * 4, errors["heads by 2"]
    assert.equal(cell // 2 * (3 * 5 + 4) + cell // 2 * (3 * 4 + 5), all[3])
    assert.equal(all[3], all[7])
    -- forward k and v of the own block, backward once more, and gradients in f32 of the other's
    -- block and of the own one, on their way to the owner
    all = errors["ring of 2"]
    assert.equal(2 * cell * (5 + 5) + 2 * cell * (5 + 4), all[4])
    assert.equal(2 * cell * (4 + 4) + 2 * cell * (4 + 5), all[8])
  end)

  it("computes the same in any order of queues", function()
    local list, most = rank_cases.some(LIST, function(line)
      return line:find "empty" or line:find "joint, circles" or line:find "both"
    end)
    local late, rows = rank_cases.start(dir, CASES, list, "shadow")
    assert.equal(0, late.exit, late.output)
    local n = 0
    for name, row in pairs(rows) do
      n = n + 1
      assert.same(errors[name], row)
    end
    assert.equal(most, n)
  end)

  -- builds with sanitizers have no emulated GPU; a second device is not used with it
  local on_gpus = not os.getenv "MOONREEL_DEVICE"
    and base.exists((process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so"))) and it or pending
  on_gpus("gives it between emulated GPUs, and sends as much", function()
    local list, most = rank_cases.some(LIST, function(line)
      return line:find "a token" or line:find "one key" or line:find "both"
    end)
    local gpus, rows = rank_cases.start(dir, CASES, list, "cudaemu")
    assert.equal(0, gpus.exit, gpus.output)
    local n = 0
    for name, row in pairs(rows) do
      n = n + 1
      for at = 1, #row, 4 do
        assert.is_true(row[at] <= 1e-5, "forward off by " .. row[at])
        assert.is_true(row[at + 1] <= 1e-4, "gradient off by " .. row[at + 1])
        assert.same({ errors[name][at + 2], errors[name][at + 3] }, { row[at + 2], row[at + 3] })
      end
    end
    assert.equal(most, n)
  end)

  it("exchanges a group of heads during the attention of the one before", function()
    local G = require "moonreel.core.graph"
    local g = G.graph()
    local x = g:input("x", "f32", { 1, 1, 5, 4, 8 })
    g:output("o", (sequence.new { heads = 2, groups = 2 }:attend(g, x, x, x, 10)))
    local schedule, overlapped, attention = g:finish():schedule(), {}, {}
    for step, op, rest in schedule:gmatch "(%d+) %S+ +(%S+) ([^\n]*)" do
      if op == "all_to_all" then
        overlapped[#overlapped + 1] = rest:match "overlaps compute (%d+)"
      elseif op == "attention" then
        attention[#attention + 1] = step
      end
    end
    -- each group is sent there and back: the second arrives while the first one's results leave
    assert.equal(4, #overlapped)
    assert.same(attention, { overlapped[2], overlapped[3] }, schedule)
  end)

  -- a ring is within a host, so messages between rings use the network
  it("passes keys within rings while those of the next ring are on their way", function()
    local g = require("moonreel.core.graph").graph()
    local x = g:input("x", "f32", { 1, 1, 5, 4, 8 })
    g:output("o", (sequence.new { inner = 3, outer = 2 }:attend(g, x, x, x, 30)))
    local schedule, hops, attention = g:finish():schedule(), {}, {}
    for step, queue, op, rest in schedule:gmatch "(%d+) (%S+) +(%S+) ([^\n]*)" do
      if op == "shift" then
        local from, to = rest:match "overlaps compute (%d+) to (%d+)"
        hops[queue] = hops[queue] or {}
        table.insert(hops[queue], { tonumber(from), tonumber(to) })
      elseif op == "attention" then
        attention[#attention + 1] = tonumber(step)
      end
    end
    -- six blocks: two hops in each of two rings, and one between these
    assert.same({ 6, 4, 1 }, { #attention, #hops.comm_intra, #hops.comm_inter }, schedule)
    -- each hop overlaps the attention before the block that it brings; the one between rings
    -- overlaps all of the first ring
    local function overlaps(hop, step) return hop[1] <= step and step <= hop[2] end
    for i, before in ipairs { 1, 2, 4, 5 } do
      assert.is_true(overlaps(hops.comm_intra[i], attention[before]), schedule)
    end
    for i = 1, 3 do
      assert.is_true(overlaps(hops.comm_inter[1], attention[i]), schedule)
    end
    assert.is_false(overlaps(hops.comm_inter[1], attention[4]), schedule)
  end)

  it("sends the bytes of the formula within rings and between them", function()
    local script = dir:write("levels.lua", [[
      local E, G = require "moonreel.core.exec", require "moonreel.core.graph"
      local T, ops = require "moonreel.core.tensor", require "moonreel.core.op"
      local world = require("moonreel.comm").world()
      for i = 1, #arg, 2 do
        local seq = require("moonreel.nn.sequence").new { rank = world:rank(),
          inner = math.tointeger(arg[i]), outer = math.tointeger(arg[i + 1]), comm = world }
        local g, x = G.graph(), {}
        for k, name in ipairs { "q", "k", "v" } do
          x[k] = g:input(name, "bf16", { 2, 1, 10, 4, 8 })
        end
        local o = ops.cast(seq:attend(g, x[1], x[2], x[3], 40, { scale = 0.5 }), { dtype = "f32" })
        for k, d in ipairs(g:backward((ops.sum(o, { axes = { 0, 1, 2, 3, 4 } })), x)) do
          g:output("d" .. k, d)
        end
        local run <close> = E.new(E.device("cpu", 1), nil, {})
        local prog = run:compile(g:finish())
        for _, name in ipairs { "q", "k", "v" } do
          prog:set(name, T.new("bf16", { 2, 1, 10, 4, 8 }))
        end
        world:reset_counts()
        prog:run()
        prog:get "d1"
        io.write(("%d "):format(world:counts().shift.bytes))
      end
    ]])
    local shapes, want = { { 4, 1 }, { 2, 2 }, { 1, 4 } }, ""
    local list = { process.program(), "-n", "4", script }
    for _, shape in ipairs(shapes) do
      local near, far = layout.bytes({ heads = 1, inner = shape[1], outer = shape[2] }, 80, 32)
      want = want .. ("%d "):format(near + far)
      list[#list + 1], list[#list + 2] = tostring(shape[1]), tostring(shape[2])
    end
    local ran = process.run(list, "", { deadline_s = 600 })
    assert.equal(0, ran.exit, ran.output)
    assert.equal(want:rep(4), ran.output)
    -- a ring within each of two hosts sends half as much between them as one ring over both
    local _, far = layout.bytes({ heads = 1, inner = 2, outer = 2 }, 80, 32)
    local _, flat = layout.bytes({ heads = 1, inner = 1, outer = 4 }, 80, 32)
    assert.is_true(far < flat / 2)
  end)

  it("divides tokens without gaps, nested and evenly", function()
    for _, mesh in ipairs { { 1, 1, 1 }, { 4, 1, 1 }, { 2, 3, 2 }, { 1, 5, 1 }, { 8, 2, 16 } } do
      local size = mesh[1] * mesh[2] * mesh[3]
      for _, n in ipairs { 0, 1, 5, 31, 256, 1000 } do
        local at, least, most = 0, math.huge, 0
        for rank = 0, size - 1 do
          local one = sequence.new { rank = rank, heads = mesh[1], inner = mesh[2],
            outer = mesh[3] }
          local start, stop = one:share(n)
          assert.equal(at, start)
          local text, image = one:joint(n // 3, n - n // 3)
          assert.equal(stop - start, text + image)
          assert.equal(math.max(0, math.min(stop, n // 3) - start), text)
          at, least, most = stop, math.min(least, stop - start), math.max(most, stop - start)
        end
        assert.equal(n, at)
        assert.is_true(most - least <= 1)
      end
    end
  end)

  it("refuses ranks that do not exist, and heads that do not divide", function()
    fails("MR_E_USAGE", "rank 4, 4 ranks: expected 1 x 2 x 2 ranks", sequence.new, { rank = 4,
      heads = 2, inner = 2 })
    local G = require "moonreel.core.graph"
    local g = G.graph()
    local x = g:input("x", "f32", { 1, 1, 3, 4, 8 })
    local three = sequence.new { heads = 3 }
    fails("MR_E_SHAPE", "3 ranks cannot exchange 4 heads", three.attend, three, g, x,
      x, x, 9)
  end)
end)
