--- Solutions are exact at their limits.
-- Covers: lua/moonreel/plan/show_solved.lua
-- MOONREEL_FITS=RECIPE solves it for 30 memories of five machines, which takes minutes.
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local compiled = require "moonreel.plan.compiled"
local fails = require "spec.support.fails"
local json = require "moonreel.core.json"
local machine = require "moonreel.plan.machine"
local mesh = require "moonreel.plan.mesh"
local plan = require "moonreel.plan"
local process = require "moonreel.core.process"
local settings = require "moonreel.settings"
local small_plan = require "spec.support.small_plan"
local solve = require "moonreel.plan.solve"

local bake, small = small_plan.bake, small_plan.machine

local function run(...)
  local done = process.run({ process.program(), "plan", ... }, "", { deadline_s = 600 })
  return done.exit, done.output
end

-- calls f with an open plan of the small model
local function with_open(f, ...)
  local m = small(1e9)
  local cache <close> = compiled.new(m)
  return f(plan.open(bake(...), { mesh = mesh.new(m), compiled = cache }))
end

local function total(open, b, batch)
  return open:row(setmetatable({ batch = batch }, { __index = b })).total
end

describe("the largest batch", function()
  it("fits, and one more does not, for thirty memories", function()
    with_open(function(open)
      for k = 1, 30 do
        local memory = 1e6 * 40 ^ base.random_uniform(3, "memory", k, 0)
        for _, row in ipairs(solve.fit(open, memory)) do
          local b = row.bucket
          if row.batch > 0 then
            assert.is_true(total(open, b, row.batch) <= memory)
            assert.equal(total(open, b, row.batch), row.total)
          end
          assert.is_true(total(open, b, row.batch + 1) > memory)
          assert.equal(total(open, b, row.batch + 1), row.above)
        end
      end
    end, "bucket_config=recipe.replace{['32px'] = {[6] = {1.0, 8}}}", "model.hidden_size=16",
      "text_encoder.width=16", "model.caption_channels=16")
  end)

  it("in a part of the memory recomputes as much as on a machine of that size", function()
    with_open(function(open)
      local b = open:buckets()[2]
      assert.is_false(open:choice(b))
      local memory = total(open, b, b.batch) - 1
      assert.is_truthy(open:within(memory):choice(b))
      local cache <close> = compiled.new(small(memory))
      local there = plan.open(open.settings, { mesh = mesh.new(small(memory)), compiled = cache })
      for _, solved in ipairs { solve.fit, solve.balance } do
        local want = solved(there, memory)
        for i, row in ipairs(solved(open, memory)) do
          assert.same({ want[i].batch, want[i].total, want[i].seconds },
            { row.batch, row.total, row.seconds })
        end
      end
    end, "model.depth=2", "grad_ckpt_settings=auto", "grad_checkpoint=true")
  end)

  it("is a table that a recipe can use, without buckets that fit no sample", function()
    with_open(function(open)
      local rows = solve.fit(open, 60e6)
      local text = solve.table_text(open, rows)
      local body = load("local recipe = ... return { " .. text .. " }")({ remove = "removed" })
      assert.same({ 1.0, rows[1].batch }, body.bucket_config["32px"][1])
      assert.same({ 1.0, rows[2].batch }, body.bucket_config["32px"][6])
      rows[2].batch = 0
      body = load("local recipe = ... return { " .. solve.table_text(open, rows) .. " }")(
        { remove = "removed" })
      assert.equal("removed", body.bucket_config["32px"][6])
    end)
    with_open(function(open)
      assert.matches('%["32px"%] = { %[1%] = { { 0.5, 0.25 }, %d+ }, %[6%] = { 0.0, recipe.none } '
        .. '}', solve.table_text(open, solve.fit(open, 60e6)))
    end, "bucket_config={['32px'] = {[1] = {{0.5, 0.25}, 3}, [6] = {0.0, none}}}")
  end)
end)

-- four kinds of GPUs and a processor, with another memory
local MACHINES <const> = { "A100", "B200", "H100", "H200", "processor" }
local function of_machine(name, memory)
  local more = { memory_bytes = memory }
  if name == "processor" then
    name, more.cpu = "H100", E.device("cpu", 1):facts()
    more.program_bytes, more.reserve_bytes = 1e6, 0
  end
  return setmetatable(more, { __index = machine.open(name) })
end

-- a solved table, planned in place of the recipe's
local function planned(recipe, open, rows, given, words)
  local body = solve.table_text(open, rows):match "^bucket_config = (.*),\n$"
  local all = table.move(words, 1, #words, 1, { [#words + 1] = "bucket_config=" .. body })
  return plan.of(settings.bake(recipe, all), given)
end

-- solves for memories of a machine and plans the results; returns the number of tables
local function solve_and_plan(name, recipe, words, ranks, memories)
  local cache <close>, count = compiled.new(of_machine(name, 1)), 0
  for _, memory in ipairs(memories) do
    local m = of_machine(name, memory)
    local given = { mesh = mesh.new(m, m.cpu and 1 or ranks), compiled = cache }
    local open = plan.open(settings.bake(recipe, words), given)
    local kept, rows, all = {}, solve.fit(open, memory)
    for _, row in ipairs(rows) do
      kept[#kept + 1] = row.batch > 0 and row or nil
    end
    local p = #kept > 0 and planned(recipe, open, rows, given, words)
      or { buckets = {}, notes = {} }
    assert.equal(#kept, #p.buckets)
    for i, b in ipairs(p.buckets) do
      assert.equal(kept[i].batch, b.batch)
      assert.is_true(b.fits and (b.total <= kept[i].total or all.slots == 0),
        ("%s in %d of %s"):format(plan.bucket_name(b), memory, name))
    end
    -- and no program is closed for another, when there is room for two
    assert.is_nil(all.slots > 0
      and table.concat(p.notes, "\n"):match "programs of all buckets[^\n]*" or nil)
    count = count + math.min(1, #kept)
  end
  return count
end

describe("tables of the largest batches", function()
  -- the least has room for one bucket, the most for hundreds of samples
  it("fit when planned, with the programs of all their buckets", function()
    local words = table.move(small_plan.words, 1, #small_plan.words, 1, {})
    for _, name in ipairs(MACHINES) do
      local least = name == "processor" and 6.3e7 or 4.01e9
      assert.is_true(solve_and_plan(name, "tiny/demo", words, 2,
        { least + 1e6, least + 4e6, least + 3e7, least + 2e8 }) >= 3, name)
    end
  end)

  it("fit for a shipped recipe, thirty memories of each machine #slow", function()
    local recipe, memories = os.getenv "MOONREEL_FITS", {}
    if not recipe then
      return pending "MOONREEL_FITS names no recipe"
    end
    for k = 0, 29 do
      memories[#memories + 1] = (16 * (300 / 16) ^ (k / 29) * 2 ^ 30) // 1
    end
    for _, name in ipairs(MACHINES) do
      assert.is_true(solve_and_plan(name, recipe, {}, 8, memories) > 0)
    end
  end)
end)

describe("balanced batches", function()
  it("take no longer than the target, fit, and could not be larger", function()
    with_open(function(open)
      local memory = 80e6
      local rows, target, p = solve.balance(open, memory)
      local largest = solve.fit(open, memory)
      local reached = false
      for i, row in ipairs(rows) do
        assert.is_true(row.seconds <= target and row.total <= memory)
        assert.is_true(row.batch <= largest[i].batch)
        local more = open:row(setmetatable({ batch = row.batch + 1 }, { __index = row.bucket }))
        assert.is_true(more.seconds.step > target or row.batch == largest[i].batch)
        reached = reached or row.batch == largest[i].batch
      end
      assert.is_true(reached)
      assert.is_true(p > 0.2 and p < 2, p)
      -- the rule: B x S^p is equal in all, unless memory or one sample limits it
      local c = {}
      for i, row in ipairs(rows) do
        assert.is_true(row.rule >= 1 and row.rule <= largest[i].batch)
        assert.equal(open:row(setmetatable({ batch = row.rule }, { __index = row.bucket }))
          .seconds.step, row.rule_s)
        c[#c + 1] = row.rule > 1 and row.rule < largest[i].batch
          and row.rule * (row.tokens / row.batch) ^ p or nil
      end
      assert.is_true(#c < 2 or math.abs(c[1] / c[2] - 1) < 0.2)
    end)
  end)
end)

describe("what is too large", function()
  it("is reported with ways that fit, each planned, and the nearest of each kind", function()
    local function with(values)
      return bake("model.depth=4", "grad_checkpoint=true",
        "bucket_config=recipe.replace{['32px'] = {[6] = {1.0, 8}}}", table.unpack(values))
    end
    -- of the larger bucket, programs of others left out
    local function total_of(values, of, m)
      local cache <close> = compiled.new(m)
      local open = plan.open(with(values), { mesh = mesh.new(m, 2):with(of), compiled = cache,
        as_is = true })
      local most = 0
      for _, b in ipairs(open:buckets()) do
        most = math.max(most, open:row(b).total)
      end
      return most
    end
    local least = total_of({}, { zero = 1 }, small(1e9))
    local room = small(least - 1)
    local cache = compiled.new(room)
    local given = { mesh = mesh.new(room, 2), compiled = cache }
    local p = plan.of(with {}, given)
    assert.is_false(p.largest.fits)
    local seen = {}
    for _, one in ipairs(solve.remedies(p, given, with)) do
      seen[one.text:gsub("%d+$", "N"):gsub(" of %d.*", " of N")] = one
      assert.is_true(one.total < least, one.text)
    end
    cache:close()
    assert.equal(total_of({ "grad_ckpt_keep_attention=false" }, { zero = 1 }, room),
      seen["grad_ckpt_keep_attention = false"].total)
    -- in this small model, gathered weights need more than sharing them saves
    assert.is_true(total_of({}, { zero = 3 }, room) > room.memory_bytes)
    assert.is_nil(seen["plugin_config.zero_stage = N"])
    assert.is_not_nil(seen["plugin_config.sp_size = N"])
    assert.is_not_nil(seen["4 GPUs"])
    -- temporary gradients of these ranks are no more than all: smaller buckets do not help
    assert.is_nil(seen["plugin_config.reduce_bucket_size_in_m = N"])
    -- the batch is the largest: one more does not fit
    local text = seen["a batch of N"].text
    assert.equal(plan.bucket_name(p.largest), text:match "^a batch of %d+ of (.*)$")
    local batch = tonumber(text:match "%d+")
    local open = plan.open(with {}, { compiled = compiled.new(room), mesh = given.mesh })
    local b = setmetatable({}, { __index = p.largest })
    b.batch = batch
    assert.equal(seen["a batch of N"].total, open:row(b).total)
    b.batch = batch + 1
    assert.is_true(open:row(b).total > room.memory_bytes)
    open.compiled:close()
  end)
end)

describe("buckets of ranks that are too large", function()
  it("are reported with the largest that fits, planned", function()
    local function with(values)
      return bake("model.hidden_size=512", "model.depth=2", "model.num_heads=8",
        "bucket_config=recipe.replace{['32px'] = {[1] = {1.0, 1}}}", "optim.type=adamw",
        "plugin_config.zero_stage=2", table.unpack(values))
    end
    local function total_of(m, size)
      local cache <close> = compiled.new(m)
      local open = plan.open(with { size and ("plugin_config.reduce_bucket_size_in_m=%d"):format(
        size) }, { mesh = mesh.new(m, 8), compiled = cache })
      return open:row(open:buckets()[1]).total
    end
    local whole, at_8 = total_of(small(1e9)), total_of(small(1e9), 8)
    assert.is_true(at_8 < whole)
    local m = small(at_8)
    local cache <close> = compiled.new(m)
    local given = { mesh = mesh.new(m, 8), compiled = cache }
    local p, seen = plan.of(with {}, given), {}
    assert.is_false(p.largest.fits)
    for _, one in ipairs(solve.remedies(p, given, with)) do
      seen[one.text] = one.total
    end
    assert.equal(at_8, seen["plugin_config.reduce_bucket_size_in_m = 8"])
  end)
end)

describe("several buckets that are too large", function()
  it("are tested for each way, the hardest first, until one does not fit", function()
    local open = plan.open
    finally(function() plan.open = open end)
    local asked
    plan.open = function()
      return { bucket_elements = function() return 0 end, step = function() end,
        held = function(_, b)
          asked = asked .. b.name
          return { total = b.then_ }
        end }
    end
    -- recomputation is the only way of a single rank: a bucket's memory before and after
    local function answer(...)
      local buckets, m = {}, { memory_bytes = 100, cpu = true }
      for i, then_ in ipairs { ... } do
        buckets[i] = { name = ("abc"):sub(i, i), batch = 1, fits = false, total = 200 + i,
          then_ = then_ }
      end
      asked = ""
      local rows = solve.remedies({ buckets = buckets, mesh = { zero = 0, ranks = 1, sequence = 1,
        gpus = 1, machine = m } }, { mesh = { machine = m } }, function()
        return { model = { num_heads = 1 } }
      end)
      return rows[1] and rows[1].total, asked
    end
    assert.same({ 90, "cba" }, { answer(70, 90, 50) })
    assert.same({ nil, "cba" }, { answer(101, 90, 50) })
    assert.same({ nil, "c" }, { answer(70, 90, 101) })
  end)

  it("are tested on more GPUs at the recipe's ZeRO stage", function()
    local open, stages = plan.open, {}
    finally(function() plan.open = open end)
    plan.open = function(_, given)
      stages[given.mesh.ranks] = given.mesh.zero
      return { bucket_elements = function() return 0 end, step = function() end,
        held = function() return { total = given.mesh.zero == 3 and 90 or 101 } end }
    end
    local m = machine.open "H100"
    local rows = solve.remedies({ buckets = { { batch = 1, fits = false, total = 200 } },
      mesh = mesh.new(m) }, { mesh = { machine = setmetatable({ memory_bytes = 100 },
      { __index = m }) } }, function()
      return { model = { num_heads = 1 }, grad_checkpoint = true, plugin = false,
        plugin_config = { zero_stage = 3 } }
    end)
    assert.same({ 0, 3, "2 GPUs" }, { stages[1], stages[2], rows[1].text })
  end)

  it("are tested on the most GPUs if twice as many do not fit", function()
    local open = plan.open
    finally(function() plan.open = open end)
    -- tested numbers of GPUs, and the fewest that fit
    local function answer(room)
      local asked, m = {}, { memory_bytes = 100 }
      plan.open = function(_, given)
        asked[#asked + 1] = given.mesh.ranks
        return { bucket_elements = function() return 0 end, step = function() end,
          held = function() return { total = given.mesh.ranks < room and 101 or 90 } end }
      end
      local of = { zero = 3, ranks = 8, sequence = 8, gpus = 8, machine = m,
        larger = function(_, times) return { ranks = 8 * times } end }
      local rows = solve.remedies({ buckets = { { batch = 1, fits = false, total = 200 } },
        mesh = of }, { mesh = { machine = m } }, function()
        return { model = { num_heads = 8 }, grad_checkpoint = true }
      end)
      return rows[1] and rows[1].text, table.concat(asked, " ")
    end
    assert.same({ "16 GPUs", "8 16" }, { answer(16) })
    assert.same({ "64 GPUs", "8 16 2048 32 64" }, { answer(64) })
    assert.same({ nil, "8 16 2048" }, { answer(4096) })
  end)

  it("are answered with a batch for each, or with fields that solve them", function()
    local function remedies(memory, ...)
      local words = { ... }
      local function with(values)
        return bake(table.unpack(table.move(values, 1, #values, #words + 1,
          table.move(words, 1, #words, 1, {}))))
      end
      local m = small(memory)
      local cache <close> = compiled.new(m)
      local given = { mesh = mesh.new(m), compiled = cache }
      local p = plan.of(with {}, given)
      local rows = solve.remedies(p, given, with)
      return rows[#rows], p, with
    end
    local last, p, with = remedies(8e6, "grad_checkpoint=true",
      "bucket_config=recipe.replace{['32px'] = {[1] = {1.0, 99}, [6] = {1.0, 40}}}")
    local first, second = last.text:match "^batches of (%d+) of 32px 1x32x32 and (%d+) of 32px 6x"
    assert.is_truthy(second, last.text)
    local cache <close> = compiled.new(p.mesh.machine)
    local open = plan.open(with {}, { mesh = p.mesh, compiled = cache })
    for i, batch in ipairs { tonumber(first), tonumber(second) } do
      assert.is_true(total(open, p.buckets[i], batch) <= 8e6)
      assert.is_true(total(open, p.buckets[i], batch + 1) > 8e6)
    end
    local many = "bucket_config=recipe.replace{['32px'] = {[1] = {1.0, 99}, [2] = {1.0, 50}, [3] = "
      .. "{1.0, 40}, [4] = {1.0, 30}}}"
    local all = "smaller batches in all of these buckets (--fit all)"
    assert.equal(all, remedies(8e6, "grad_checkpoint=true", many).text)
    -- not even one sample fits
    last = remedies(1e5, "grad_checkpoint=true", many)
    assert.is_true(last == nil or last.text ~= all)
  end)
end)

describe("moonreel plan", function()
  local function demo(...)
    local words = { "recipes/tiny/demo", ... }
    return run(table.unpack(table.move(small_plan.words, 1, #small_plan.words, #words + 1, words)))
  end

  it("--fit, --balance and --solve print tables and fragments", function()
    local exit, text = demo("--gpus", "H100", "--fit", "4.5GB")
    assert.equal(0, exit)
    assert.matches("\n32px 6x32x32 +8 +%d+ +4.5 GB +4.5 GB\n", text)
    assert.matches("%-%- the largest batches in 4.5 GB on 1 H100; 4.0 GB of it stay free for "
      .. "driver, libraries and communication\nbucket_config = {\n", text)
    -- 80 GiB are more than the card has
    local done = process.run({ "/bin/sh", "-c", 'exec "$0" plan tiny/demo --gpus H100 --fit 80GiB '
      .. '2>&1', process.program() }, "", { deadline_s = 600 })
    assert.equal(0, done.exit, done.output)
    assert.matches("note: H100 has 85.5 GB, less than the 85.9 GB of %-%-fit; solved for the "
      .. "smaller size\n",
      done.output)
    assert.matches("the largest batches in 85.5 GB on 1 H100;", done.output)
    for _, how in ipairs { "--json", "--balance" } do
      exit, text = demo("--gpus", "H100", "--fit", "3GB", how)
      assert.equal(5, exit)
    end
    local bucket, try = text:match("nothing fits in 3.0 GB on 1 H100: one sample of bucket (32px "
      .. "1x32x32) needs 4.0 GB; try: %-%-fit (%d+MB)\n$")
    assert.is_string(bucket, text)
    -- the reported memory is enough, and the least
    exit, text = demo("--gpus", "H100", "--fit", try)
    assert.equal(0, exit)
    assert.matches("\n32px 1x32x32 +%d+ +[1-9]", text)
    local less = try:gsub("%d+", function(n) return n - 1 end)
    exit, text = demo("--gpus", "H100", "--fit", less)
    assert.equal(5, exit)
    assert.matches("\nnothing fits in ", text)
    exit, text = demo("--gpus", "H100", "--fit", "all",
      "bucket_config=recipe.replace{['4k'] = {[999] = {1.0, 1}}}")
    assert.equal(5, exit)
    assert.matches("needs %S+ [GT]B; try: without %-%-fit, which says what would need less\n$",
      text)
    exit, text = demo("--gpus", "H100", "--balance", "--fit", "4.5GB", "--json")
    assert.equal(0, exit)
    assert.equal(2, #json.decode(text))
    exit, text = demo("--gpus", "2xH100", "--solve", "mesh")
    assert.equal(0, exit)
    assert.matches("the fastest that fits on 2 H100: [%d.e+]+ samples a second\ngrad_checkpoint",
      text)
  end)

  it("--fit reports buckets without room for a sample, and what gives them room", function()
    local two = "bucket_config=recipe.replace{['32px']={[1]={1.0,1}},['256']={[51]={1.0,1}}}"
    local exit, text = demo("--gpus", "H100", "--fit", "4.1GB", two)
    assert.equal(5, exit)
    assert.matches("\n256 51x128x512 +1 +0 +none +4.2 GB\n", text)
    local memory = text:match("\nnot even one sample fits in 1 of 2 buckets, which the table "
      .. "leaves out: 256 51x128x512 %(4.2 GB%)\n  one sample of each fits with any of: %-%-fit "
      .. "(%d+MB)\n")
    assert.is_string(memory, text)
    exit, text = demo("--gpus", "H100", "--fit", memory, two)
    assert.equal(0, exit)
    assert.matches("\n256 51x128x512 +1 +1 +4.2 GB", text)
    assert.is_nil(text:find("no room", 1, true))
    exit, text = run("recipes/tiny/demo", "--gpus", "H100", "--fit", "4.3GB", "--balance",
      "grad_checkpoint=false", two, "model.depth=4", table.unpack(small_plan.words, 2))
    assert.equal(5, exit)
    assert.matches("fits with any of: grad_checkpoint = true %(4.2 GB%), %-%-fit", text)
  end)

  it("refuses unknown sizes, solutions and series", function()
    for _, size in ipairs { "much", "0GB", "0.0MiB" } do
      fails("MR_E_USAGE", ("%%-%%-fit '%s': expected a size above zero like 80GiB"):format(size),
        require("moonreel.cli.plan").run, { "tiny/demo", "--gpus=H100", "--fit", size })
    end
    assert.equal(2, (demo("--solve", "everything")))
    local exit, text = run("opensora-1.2/lambda/tutorial", "--gpus", "8xH100", "--fit", "all")
    assert.equal(2, exit, text)
  end)
end)
