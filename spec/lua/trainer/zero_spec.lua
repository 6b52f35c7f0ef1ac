--- The part of a run's state that each rank keeps changes no bit: ZeRO 0, 1, 2 and 3 give the same
-- losses and the same checkpoints for all ways to compute gradients. MOONREEL_STEPS=20 makes the
-- runs longer, MOONREEL_EVERY=1 tries every number of ranks, in one hop and in two.
-- Covers: lua/moonreel/trainer/loop.lua lua/moonreel/trainer/programs.lua core/graph/shards.c
local demo_data = dofile "spec/support/demo_data.lua"
local process = require "moonreel.core.process"
local program = require "spec.support.program"
local run = require "moonreel.run"

local STEPS = math.tointeger(os.getenv("MOONREEL_STEPS")) or 3
local EVERY = os.getenv("MOONREEL_EVERY") ~= nil

-- inputs of blocks wait in host memory
local AWAY = "grad_ckpt_buffer_size=100000000"

local out = demo_data.scratch()
teardown(function()
  os.execute("rm -r '" .. out .. "'")
  demo_data.remove()
end)

-- runs one after another by the same ranks, `node` ranks a host, with small buckets
local TRAIN = [[
local place, ranks = require "moonreel.comm.place", require "moonreel.optim.ranks"
local find, cut, node = place.find, ranks.cut, tonumber(arg[1])
function place.find(...)
  local here = find(...)
  if node > 0 then
    here.local_size, here.local_rank = node, here.rank % node
  end
  return here
end
function ranks.cut(...)
  local wanted = cut(...)
  wanted.elements = 8000
  return wanted
end
-- node -1: everything takes a hundred times as long to send
local new = ranks.new
function ranks.new(...)
  local self = new(...)
  function self:bytes(...)
    local bytes = getmetatable(self).__index.bytes(self, ...)
    bytes.sent = bytes.sent * (node < 0 and 100 or 1)
    return bytes
  end
  return self
end
for i = 2, #arg do
  local words = {}
  for word in arg[i]:gmatch "[^\t]+" do
    words[#words + 1] = word
  end
  assert(require("moonreel.cli.train").run(words) == 0)
end
]]
local script = out .. "/train.lua"

-- a very small model in several buckets
local SMALL = { "tiny/demo", "dtype=fp32", "warmup_steps=2", "threads=1",
  "num_workers=1", "model.depth=1", "model.hidden_size=16", "model.num_heads=1",
  "text_encoder.width=16", "text_encoder.num_heads=1", "text_encoder.rows=64",
  "model.caption_channels=16", "log_every=1000", "outputs=" .. out,
  'bucket_config={["32px"]={[1]={1.0,2},[6]={1.0,1}}}' }

-- trains with `n` ranks and each of these named lists of words; returns the output
local function train(size, node, runs)
  require("moonreel.core.base").replace_file(script, TRAIN)
  local list = { process.program(), "-n", tostring(size), script, tostring(node) }
  for name, words in pairs(runs) do
    list[#list + 1] = table.concat(SMALL, "\t") .. "\tdataset.data_path=" .. demo_data.path()
      .. "\tname=" .. name .. "\tsteps=" .. STEPS .. "\t" .. table.concat(words, "\t")
  end
  return program.output(list)
end

-- the steps of a run: losses and norms
local function steps(name)
  local list = {}
  for entry in run.entries(demo_data.run_dir(out, name)) do
    if entry.kind == "step" then
      -- no batch is left out
      assert.equal(entry.samples, entry.weight)
      list[#list + 1] = ("%.17g %.17g"):format(entry.loss, entry.grad_norm)
    end
  end
  assert.equal(STEPS, #list)
  return list
end

local function newest(name) return demo_data.newest(out, name) end

local function assert_same(one, other)
  assert.same(steps(one), steps(other))
  local a <close> = newest(one)
  local b <close> = newest(other)
  local names = a:names()
  assert.equal(#names, #b:names())
  for _, name in ipairs(names) do
    assert.equal(0, a:compare(b, name).differing, name)
  end
end

-- all bytes of a micro-step, as a run reports them
local function total_of(memory)
  local sum = 0
  for _, kind in ipairs { "arena", "pinned", "params", "state", "inputs", "landing", "staged",
      "ring", "results", "consts", "library", "host", "offloaded" } do
    sum = sum + memory[kind]
  end
  return sum
end

-- The bytes that a run reports for its ranks at its start equal those of a plan: of the state, and
-- of each bucket's micro-step.
local function assert_planned(name, size, node)
  local compiled, machine = require "moonreel.plan.compiled", require "moonreel.plan.machine"
  local mesh, ranks = require "moonreel.plan.mesh", require "moonreel.optim.ranks"
  local dir, said, peaks = demo_data.run_dir(out, name), nil, {}
  for entry in run.entries(dir) do
    said = entry.kind == "start" and entry.shares or said
    for _, row in ipairs(entry.kind == "start" and entry.buckets or {}) do
      peaks[row.bucket] = row.peak_bytes
    end
  end
  local m = setmetatable({ cpu = require("moonreel.core.exec").device("cpu", 1):facts() },
    { __index = machine.open "H100" })
  local cache <close> = compiled.new(m)
  local here = node > 0 and node or size
  local cut = ranks.cut
  finally(function() ranks.cut = cut end)
  function ranks.cut(...)
    local wanted = cut(...)
    wanted.elements = 8000
    return wanted
  end
  local plan, s = require "moonreel.plan", require("moonreel.settings").load(dir
    .. "/settings.json")
  local given = { mesh = mesh.new(m, here, size // here), compiled = cache }
  local p, open, report = plan.of(s, given), plan.open(s, given), {}
  for _, b in ipairs(p.buckets) do
    local memory = cache:rank_step(s, open.models, open.mesh, b).memory
    report[plan.bucket_name(b)] = total_of(memory)
    -- the listed parts are all of the arena
    local update, bytes = open.update.arena, b.bytes
    assert.equal(math.max(memory.arena, update), bytes.arena + bytes.windows + bytes.gradients
      - open.shares.regions.gradients, name)
  end
  ranks.cut = cut
  assert.same(peaks, report, name)
  assert.equal(said.stage, p.mesh.zero)
  for _, key in ipairs { "state", "sent", "buckets", "windows" } do
    assert.equal(said[key], p.shares[key], ("%s, %s"):format(name, key))
  end
  assert.is_true(said.sent > 0)
end

local compared = 0

-- runs of the stages from `first` on are the same, also with other words
local function compare(size, node, first, ...)
  local runs, tag = {}, ("%d-%d-%d-"):format(size, node, compared)
  compared = compared + 1
  for stage = first, 3 do
    runs[tag .. stage] = { "plugin_config.zero_stage=" .. stage, ... }
  end
  train(size, node, runs)
  for stage = first, 3 do
    if stage > first then
      assert_same(tag .. first, tag .. stage)
    end
    assert_planned(tag .. stage, size, node)
  end
end

describe("a run by ranks", function()
  it("has the bytes of its plan, and a prediction next to the times of its steps", function()
    local said = train(2, -1, { report = { "plugin_config.zero_stage=2", "steps=6" } })
    local dir, even = demo_data.run_dir(out, "report"), 0
    local start
    for entry in run.entries(dir) do
      even, start = even + (entry.even and 1 or 0), entry.kind == "start" and entry or start
    end
    -- the time of exchanges follows from a rate measured at the start
    assert.is_true(start.talk_s > 0 and start.talk_s < 1)
    local first = start.buckets[1]
    local ms = tonumber(said:match("bucket " .. first.bucket
      .. ": [^\n]*about ([%d.]+) ms a step"))
    assert.is_true(math.abs(ms / 1e3 - start.rounds * first.seconds - start.update_s - start.talk_s)
      < 1e-4, said)
    local p = require("moonreel.core.json").decode(demo_data.moonreel("plan", dir, "--json"))
    assert.same({ 2, 2, "this machine" }, { p.ranks, p.zero, p.machine })
    local counted = 0
    for _, row in ipairs(p.measured) do
      counted = counted + row.steps
      assert.is_true(row.predicted_s > 0 and row.predicted_bytes > 0 and row.planned_s > 0)
    end
    assert.is_true(even > 0)
    assert.equal(even, counted)
    assert.is_true(p.shares.sent > 0 and p.shares.buckets > 0)
  end)
end)

describe("the stages of ZeRO", function()
  it("are one run, in one hop and in two", function()
    compare(2, 0, 0)
    compare(4, 2, 0, "dtype=bf16")
    for _, case in ipairs(EVERY and { { 2, 1 }, { 3, 0 }, { 4, 0 }, { 8, 0 }, { 8, 2 }, { 8, 4 } }
        or {}) do
      compare(case[1], case[2], 0)
    end
  end)

  it("are one run with recomputation, frozen parts, and state in the host's memory", function()
    compare(2, 0, 1, "grad_checkpoint=true", "model.only_train_temporal=true",
      "optim.offload=true", AWAY)
  end)

  it("are one run with Muon, none of whose blocks a chunk splits", function()
    compare(2, 0, 0, "optim.type=muon")
    compare(4, 2, 0, "optim.type=muon", "dtype=bf16")
    compare(3, 0, 1, "optim.type=muon", "optim.offload=true", "grad_checkpoint=true")
    for _, case in ipairs(EVERY and { { 8, 0 }, { 8, 2 } } or {}) do
      compare(case[1], case[2], 0, "optim.type=muon")
    end
  end)

  it("are one run with moments of 8 bits, none of whose blocks a chunk splits", function()
    compare(3, 0, 0, "optim.moment_bits=8", "optim.offload=true", "dtype=bf16")
    for _, case in ipairs(EVERY and { { 2, 0 }, { 4, 2 }, { 8, 0 } } or {}) do
      compare(case[1], case[2], 0, "optim.moment_bits=8", "optim.type=muon")
    end
  end)

  it("are one run with linear layers of 8 bits", function()
    compare(2, 0, 1, "grad_checkpoint=true", "model.linear=f8")
  end)

  it("are one run when ranks share the tokens of a batch", function()
    compare(4, 0, 1, "model.num_heads=2", "plugin_config.sp_size=2", "grad_checkpoint=true", AWAY)
  end)

  it("are one run with several micro-batches a step, when gradients stay whole", function()
    -- five micro-batches over three ranks: two rounds, in the second of which one rank has none
    compare(3, 0, 0, "virtual_ranks=5", "plugin_config.reduce_each=false")
    -- each is reduced by itself: gradients are only added in another order
    compare(3, 0, 2, "virtual_ranks=5", "share_out=lpt")
  end)
end)
