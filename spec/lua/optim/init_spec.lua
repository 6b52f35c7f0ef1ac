--- The update over ranges of parameters, compared with formulas in plain Lua doubles (reference
-- opensora-1.2, sections 7.2 and 7.4).
-- Covers: lua/moonreel/nn/init.lua
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local nn = require "moonreel.nn"
local optim = require "moonreel.optim"
local process = require "moonreel.core.process"
local regions = require "moonreel.optim.regions"

-- sizes that are no multiple of the alignment of ranges, groups that change between neighbours
local GROUPS = {
  {name = "quick", count = 9, lr_factor = 2},
  {name = "plain", count = 70},
  {name = "also_plain", count = 3},
  {name = "no_decay", count = 130, decay = 0},
  {name = "still", count = 5, frozen = true},
  {name = "slow", count = 64, lr_factor = 0.25},
  {name = "both", count = 7, decay = 0.5, lr_factor = 3},
}

local function values(count, stream)
  return T.new("f32", {count}):fill_normal(4, stream, count)
end

local function new_update(device, dtype, space, bits)
  local params = G.params(dtype or "f32")
  for _, row in ipairs(GROUPS) do
    local scope = nn.scope(params, nil,
      {decay = row.decay, lr_factor = row.lr_factor, frozen = row.frozen})
    scope:add(row.name, {row.count}, {kind = "zeros"})
  end
  params:seal()
  local run = E.new(E.device(device or "cpu", 1), params,
    {regions = regions.adamw{ema = true, space = space, bits = bits}})
  for _, row in ipairs(GROUPS) do
    run:set_param(row.frozen and "frozen" or "master", row.name, values(row.count, "parameter"))
    if not row.frozen then
      run:set_param("grad", row.name, values(row.count, "gradient"))
      run:set_param("ema", row.name, values(row.count, "average"))
    end
  end
  return run, optim.new(run, params)
end

-- one element after the first update: parameter and average
local function oracle(h, row, p, g, average, norm)
  local q = math.max((norm + 1e-6) / h.max_norm, 1)
  g = g * h.grad_scale / q
  -- after one step the moments without their bias are the gradient and its square
  local direction = g / (math.abs(g) + h.eps) + h.weight_decay * (row.decay or 1) * p
  p = p - h.lr * (row.lr_factor or 1) * direction
  return p, h.ema_decay * average + (1 - h.ema_decay) * p
end

describe("optim", function()
  it("moves each group with its own decay and share of the learning rate", function()
    for _, max_norm in ipairs{1, 1e3} do
      local h = {lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 0.02, weight_decay = 0.3,
        max_norm = max_norm, ema_decay = 0.6, step = 1, grad_scale = 0.5}
      local run, update = new_update()
      local squares = 0
      for _, row in ipairs(GROUPS) do
        for _, g in ipairs(row.frozen and {} or values(row.count, "gradient"):totable()) do
          squares = squares + (g * h.grad_scale) ^ 2
        end
      end
      local norm = update:step(h)
      assert.near(1, norm / squares ^ 0.5, 1e-6)
      for _, row in ipairs(GROUPS) do
        local before = values(row.count, "parameter"):totable()
        if row.frozen then
          assert.same(before, run:param("frozen", row.name):totable())
        else
          local g, average = values(row.count, "gradient"):totable(),
            values(row.count, "average"):totable()
          local got, got_average = run:param("master", row.name):totable(),
            run:param("ema", row.name):totable()
          for i = 1, row.count do
            local p, e = oracle(h, row, before[i], g[i], average[i], norm)
            assert.near(p, got[i], 1e-6, row.name)
            assert.near(e, got_average[i], 1e-6, row.name)
          end
        end
      end
    end
  end)

  it("sets used gradients to zero, also when it changes nothing else", function()
    for _, scale in ipairs{1, 0} do
      local run, update = new_update()
      update:step{lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.3,
        ema_decay = 0.6, step = 1, grad_scale = scale}
      for _, g in ipairs(run:param("grad", "both"):totable()) do
        assert.equal(0, g)
      end
      local same = run:param("master", "both"):bytes() == values(7, "parameter"):bytes()
      assert.equal(scale == 0, same)
    end
  end)

  it("keeps state in host memory with the same bits, a few pieces on the device",
    function()
    local piece = optim.piece
    optim.piece = 64
    local function after_three(bits, device, dtype, space)
      local run, update = new_update(device, dtype, space, bits)
      local norms = {}
      for step = 1, 3 do
        for _, row in ipairs(GROUPS) do
          if not row.frozen then
            run:set_param("grad", row.name, values(row.count, "gradient" .. step))
          end
        end
        norms[step] = update:step{lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-8,
          weight_decay = 0.3, max_norm = 1, ema_decay = 0.6, step = step, grad_scale = 0.5}
      end
      local bytes = {}
      for _, row in ipairs(run:regions()) do
        bytes[row.name] = run:read(row.name, row.dtype, 0, {(row.stop - row.start) // row.per})
          :bytes()
      end
      return {norms, bytes}, run, update
    end
    for _, case in ipairs{{32, "bf16"}, {32, "f32"}, {8, "bf16"}, {8, "f32"}} do
      local wanted, _, plain = after_three(case[1], "cpu", case[2])
      assert.equal(0, plain.prog:memory().offloaded)
      for _, device in ipairs{"cpu", "shadow"} do
        local got, run, update = after_three(case[1], device, case[2], "pinned")
        assert.same(wanted, got)
        local there = 0
        for _, row in ipairs(run:regions()) do
          -- a master that is also the weight stays in its region
          local kept = row.prefix and row.role ~= "weights" and row.role ~= "frozen"
          assert.equal(kept and not row.shared and "pinned" or "device", row.space, row.name)
          if row.space == "pinned" then
            there = there + row.bytes
            -- the host can read it on all devices
            assert.is_truthy(run:host(row.name))
          end
        end
        local memory, schedule = update.prog:memory(), update.prog:schedule()
        assert.equal(there, memory.offloaded)
        assert.equal(plain.prog:memory().state, memory.state + there)
        -- three pieces of nine, in granules; numbers of codes too
        local elements = run:regions()[1].stop
        assert.is_true(memory.arena < 8 * elements, memory.arena .. " of " .. there)
        assert.matches("h2d +copy", schedule)
        assert.matches("d2h +copy", schedule)
      end
    end
    optim.piece = piece
  end)

  it("keeps moments in 8 bits: near those of 32, unchanged where nothing changes", function()
    local devices = {"cpu"}
    if base.exists((process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so"))) then
      devices[2] = "cudaemu"
    end
    local h = {lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.3,
      ema_decay = 0.6, grad_scale = 0.5}
    local function stepped(run, update, step, scale)
      for _, row in ipairs(GROUPS) do
        if not row.frozen then
          run:set_param("grad", row.name, values(row.count, "gradient" .. step))
        end
      end
      h.step, h.grad_scale = step, scale
      update:step(h)
    end
    for _, device in ipairs(devices) do
      local exact, exact_update = new_update(device, "f32")
      local run, update = new_update(device, "f32", nil, 8)
      for step = 1, 4 do
        stepped(exact, exact_update, step, 0.5)
        stepped(run, update, step, 0.5)
      end
      local moved
      for _, row in ipairs(GROUPS) do
        local before = values(row.count, "parameter"):totable()
        local want = row.frozen and before or exact:param("master", row.name):totable()
        local got = run:param(row.frozen and "frozen" or "master", row.name):totable()
        for i, w in ipairs(want) do
          -- of four steps, each at most as long as the rate and the decay
          local most = 4 * h.lr * (row.lr_factor or 1) * (1 + 0.3 * math.abs(before[i]))
          assert.near(w, got[i], 0.25 * most, row.name)
          moved = moved or w ~= got[i]
        end
      end
      assert.is_true(moved)
      local bytes = 0
      for _, row in ipairs(run:regions()) do
        bytes = bytes + (row.name:find("^adam") and row.bytes or 0)
      end
      -- a byte for each of both moments, four for each 16 and for each 64
      local elements = exact:regions()[1].stop
      assert.equal(2 * elements + 4 * elements // 16 + 4 * elements // 64, bytes)
      local codes = run:param("adam_m8", "no_decay"):bytes()
      local scale = run:param("adam_m8_scale", "no_decay"):bytes()
      stepped(run, update, 5, 0)
      assert.equal(codes, run:param("adam_m8", "no_decay"):bytes())
      assert.equal(scale, run:param("adam_m8_scale", "no_decay"):bytes())
    end
  end)

  it("proposes what to do when no parameter trains", function()
    local params = G.params("f32")
    params:add{name = "a", shape = {4}, init = {kind = "zeros"}, frozen = true}
    params:seal()
    local run = E.new(E.device("cpu", 1), params, {regions = regions.adamw()})
    local ok, problem = pcall(optim.new, run, params)
    assert.is_false(ok)
    assert.equal("MR_E_RECIPE", problem.code)
    assert.matches("there is nothing to train, because all 1 tensors of the models are frozen; "
      .. "try: ", problem.message)
  end)

  -- a small model: blocks of 16 x 16 that Muon updates, and other parameters
  local MATRICES = {fused = {48, 16}, wide = {16, 64}, square = {16, 16}}
  local OTHERS = {table = {5, 16}, bias = {16}}
  local SHAPES = {{"table", OTHERS.table}, {"fused", MATRICES.fused}, {"bias", OTHERS.bias},
    {"wide", MATRICES.wide}, {"square", MATRICES.square}}
  local RULE = {scale = "match_rms", nesterov = true}

  local function new_muon(dtype, space, since, only, moment_bits)
    local params = G.params(dtype or "f32")
    for _, row in ipairs(SHAPES) do
      if not only or only == row[1] then
        params:add{name = row[1], shape = row[2], init = {kind = "zeros"}}
      end
    end
    local names = {}
    for name in pairs(MATRICES) do
      names[#names + 1] = (not only or only == name) and name or nil
    end
    if since then
      params:seal()
    else
      params:seal{matrices = names, block = 256}
    end
    local run = E.new(E.device("cpu", 2), params, {regions = regions.adamw{ema = true,
      dtype = dtype, space = space, bits = moment_bits, matrices = params:matrices()}})
    for _, p in ipairs(params:list()) do
      run:set_param("master", p.name, values(p.count, "parameter" .. p.name):reshape(p.shape))
      run:set_param("ema", p.name, values(p.count, "average" .. p.name):reshape(p.shape))
    end
    return run, optim.new(run, params, nil, nil, {rule = RULE, since = since}), params
  end

  local function steps_of(update, run, params, from, to)
    for step = from, to do
      for _, p in ipairs(params:list()) do
        run:set_param("grad", p.name, values(p.count, p.name .. step):reshape(p.shape))
      end
      update:step{lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1,
        ema_decay = 0.5, grad_scale = 0.5, step = step,
        muon = {lr = 0.02, momentum = 0.9, weight_decay = 0.2}}
    end
  end

  local function bits(run, region, name) return run:param(region, name):bytes() end

  it("keeps no second moments of matrices, and updates all else as without Muon", function()
    local run, update, params = new_muon()
    steps_of(update, run, params, 1, 3)
    for _, row in ipairs(run:regions()) do
      if row.name == "adam_v" then
        assert.equal(params:matrices(), row.stop - row.start)
      end
    end
    local plain, plain_update, plain_params = new_muon(nil, nil, {})
    steps_of(plain_update, plain, plain_params, 1, 3)
    for name in pairs(OTHERS) do
      for _, region in ipairs{"master", "ema", "adam_m", "adam_v"} do
        assert.equal(bits(plain, region, name), bits(run, region, name), name)
      end
    end
    for name in pairs(MATRICES) do
      assert.is_false(bits(plain, "master", name) == bits(run, "master", name))
    end
  end)

  it("updates a block independent of others, q separately from k", function()
    local run, update, params = new_muon()
    steps_of(update, run, params, 1, 2)
    local alone, alone_update, alone_params = new_muon(nil, nil, nil, "wide")
    steps_of(alone_update, alone, alone_params, 1, 2)
    assert.equal(bits(alone, "master", "wide"), bits(run, "master", "wide"))
    -- rows of an orthogonal block have equal lengths: of each of the three, not of all
    local first, first_update, first_params = new_muon()
    steps_of(first_update, first, first_params, 1, 1)
    local before = values(768, "parameterfused"):totable()
    local after = first:param("master", "fused"):totable()
    for block = 0, 2 do
      local sum = 0
      for i = block * 256 + 1, block * 256 + 256 do
        -- lr scale X is the change without the decay
        sum = sum + ((1 - 0.02 * 0.2) * before[i] - after[i]) ^ 2
      end
      -- |X|^2 is about its rank, scale 0.2 sqrt(16)
      assert.near(1, math.sqrt(sum / 16) / (0.02 * 0.8), 0.25)
    end
  end)

  it("computes the same bits when state comes from host memory, piece by piece", function()
    local piece = optim.piece
    for _, dtype in ipairs{"bf16", "f32"} do
      local run, update, params = new_muon(dtype)
      steps_of(update, run, params, 1, 3)
      optim.piece = 300
      local other, other_update = new_muon(dtype, "pinned")
      steps_of(other_update, other, params, 1, 3)
      optim.piece = piece
      for _, row in ipairs(SHAPES) do
        for _, region in ipairs{"master", "ema", "adam_m", "w"} do
          assert.equal(bits(run, region, row[1]), bits(other, region, row[1]), row[1])
        end
      end
    end
  end)

  it("keeps the first moments of matrices in 8 bits as well, and no second ones", function()
    local run, update, params = new_muon()
    steps_of(update, run, params, 1, 2)
    local small, small_update, small_params = new_muon(nil, nil, nil, nil, 8)
    steps_of(small_update, small, small_params, 1, 2)
    for _, row in ipairs(small:regions()) do
      if row.name == "adam_v8" then
        assert.equal(params:matrices(), row.stop - row.start)
      end
      assert.is_false(row.name == "adam_m" or row.name == "adam_v")
    end
    -- a step is about 0.02 x 0.8 long, whatever codes do to its direction
    local want, got = run:param("master", "fused"):totable(),
      small:param("master", "fused"):totable()
    local squares = 0
    for i, w in ipairs(want) do
      squares = squares + (w - got[i]) ^ 2
    end
    local off = (squares / #want) ^ 0.5
    assert.is_true(off > 0 and off < 0.001, off)
  end)

  it("corrects the bias of a second moment from the step at which it began", function()
    local run, update, params = new_muon(nil, nil, {table = 4})
    steps_of(update, run, params, 5, 5)
    local g = values(80, "table5"):totable()
    local v = run:param("adam_v", "table"):totable()
    local before, after = values(80, "parametertable"):totable(),
      run:param("master", "table"):totable()
    for i = 1, 80 do
      local m = 0.1 * g[i] * 0.5 / (1 - 0.9 ^ 5)
      assert.near(0.01 * (g[i] * 0.5) ^ 2, v[i], 1e-6)
      assert.near(before[i] - 0.01 * (m / (math.abs(g[i] * 0.5) + 1e-8) + 0.1 * before[i]),
        after[i], 1e-5)
    end
  end)

  it("takes rate and decay of matrices from settings, in proportion to the schedule", function()
    local settings = require "moonreel.settings"
    local function rule(...) return optim.rule(settings.bake("tiny/demo", {...})) end
    assert.is_nil(rule "optim.type=adamw")
    local of = rule("optim.type=muon", "optim.lr=0.002", "optim.muon.lr=0.008",
      "optim.muon.weight_decay=0.3").of(0.001)
    assert.same({0.004, 0.95, 0.3}, {of.lr, of.momentum, of.weight_decay})
    of = rule("optim.type=muon", "optim.lr=0.002", "optim.muon.lr=none",
      "optim.weight_decay=0.05").of(0.001)
    assert.same({0.001, 0.05}, {of.lr, of.weight_decay})
    local ok, problem = pcall(rule, "optim.type=muon", "optim.lr=0", "optim.muon.lr=0.1")
    assert.is_false(ok)
    assert.matches("optim%.muon%.lr = 0%.1 with optim%.lr = 0", problem.message)
  end)
end)
