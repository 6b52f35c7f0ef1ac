-- The measurements themselves are not asserted: machines differ. What they say, and their order,
-- is.
-- Covers: core/bind/bench.c lua/moonreel/bench/*.lua lua/moonreel/cli/bench.lua
local core = require "moonreel.core.bench"
local json = require "moonreel.core.json"
local nn = require "moonreel.nn"
local process = require "moonreel.core.process"

local function run(...)
  local result = process.run({process.program(), "bench", ...}, "", {deadline_s = 600})
  return result.output, result.exit
end

describe("moonreel bench", function()
  it("keeps the best of at least four runs after one to warm up", function()
    local n = 0
    local best = require("moonreel.bench.step").best(function() n = n + 1 end, 0)
    assert.equal(5, n)
    assert.is_true(best >= 0 and best < 1)
  end)

  it("counts the memory of a program, not of whoever started it", function()
    local large <const> = 300 << 20
    local held = ("x"):rep(large)
    local done = process.run { process.program(), "-e",
      "print(require('moonreel.core.bench').max_resident())" }
    assert.is_true(core.max_resident() > #held)
    assert.is_true(tonumber(done.output) > 1 << 20 and tonumber(done.output) < large,
      done.output)
  end)

  it("times each node by its best run", function()
    local n = 0
    local prog = {time = function()
    end, times = function() return {{op = "a", seconds = n}, {op = "b", seconds = 9 - n}} end}
    local _, rows = require("moonreel.bench.step").best(function() n = n + 1 end, 0, prog)
    assert.same({{op = "a", seconds = 2}, {op = "b", seconds = 4}}, rows)
  end)

  it("holds what data takes beside its aims", function()
    local lines = require("moonreel.bench.clips").measure { seconds = 0.01, rows = 2000, clips = 30,
      pool_bytes = 16 << 20, only = { build = true, many = true } }
    local whats = {}
    for i, line in ipairs(lines) do
      whats[i] = line.what
      assert.is_true(line.value >= 0 and line.aim >= 0 and #line.unit > 0)
    end
    assert.same({ "build", "index", "memory", "torn samples", "slabs", "slabs" }, whats)
    assert.equal(0, lines[4].value)
  end)

  describe("measurements in turn", function()
    local paired = require "moonreel.bench.paired"

    it("call every measure once per round, in order", function()
      local calls = {}
      local got = paired.rounds({
        function()
          calls[#calls + 1] = "a"
          return #calls
        end,
        function()
          calls[#calls + 1] = "b"
          return 2 * #calls
        end}, 0)
      assert.equal(paired.least_rounds, #got[1])
      assert.equal(("ab"):rep(paired.least_rounds), table.concat(calls))
      assert.same({1, 3, 5}, got[1])
      assert.same({4, 8, 12}, got[2])
    end)

    it("are compared round by round: what slows both leaves their ratio", function()
      local slow = {1, 4, 1, 8, 2}
      local step, peak = {}, {}
      for i, by in ipairs(slow) do
        step[i], peak[i] = 6 / by, 12 / by
      end
      step[1] = 5
      assert.equal(0.5, paired.ratio(step, peak))
    end)

    it("give the middle one, or the mean of the two in the middle", function()
      local list = {9, 1, 4}
      assert.equal(4, paired.median(list))
      assert.same({9, 1, 4}, list)
      assert.equal(2.5, paired.median{4, 1, 2, 3})
    end)
  end)

  describe("of what a plan predicts", function()
    local bench = require "moonreel.bench.plan"
    local machine = require "moonreel.plan.machine"
    local predicted, shown, rounds = bench.predicted, bench.shown, bench.rounds
    local function small(width, depth, cells)
      return {family = "stdit3", latent = {1, 4, 1, cells, cells}, model = {depth = depth, hidden_size = width,
        num_heads = 2, caption_channels = 16, model_max_length = 8}}
    end

    -- frames through the encoders of a narrow autoencoder
    local function clip(frames)
      return {clip = {frames = frames, height = 16, width = 16, pictures = 2,
        spatial = {block_out_channels = {8, 8, 8, 8}, layers_per_block = 1, norm_num_groups = 4},
        temporal = {filters = 8, num_res_blocks = 1, num_groups = 4}}}
    end

    setup(function()
      bench.rounds = 2
      bench.predicted = function()
        return {{name = "one", of = small(48, 1, 8)}, {name = "clip", of = clip(9)},
          {name = "block", of = {block = {"t5-v1_1-small", 1, 24}}}}
      end
      bench.shown = function()
        return {small(32, 1, 6), small(64, 1, 4), clip(5), {block = {"t5-v1_1-small", 1, 16}}}
      end
    end)
    teardown(function()
      bench.predicted, bench.shown, bench.rounds = predicted, shown, rounds
    end)

    it("names no size that it predicts among those that show the rates", function()
      local sizes = {}
      local function of(one)
        local c = one.clip
        return json.encode(c and {c.frames, c.height, c.width, c.spatial.block_out_channels[1]}
          or one.block or one.model and {one.model.hidden_size, one.latent}
          or {one.size.frames, one.size.batch, one.values})
      end
      for _, one in ipairs(predicted()) do
        sizes[of(one.of)] = true
      end
      for _, one in ipairs(shown()) do
        assert.is_nil(sizes[of(one)])
        sizes[of(one)] = true
      end
    end)

    it("holds predictions of other shapes beside what the same rounds took", function()
      local rows, on = bench.measure{threads = 1, dtype = "f32"}
      assert.same({3, "f32", 1}, {#rows, on.dtype, on.threads})
      for i, name in ipairs{"one", "clip", "block"} do
        local row = rows[i]
        assert.equal(name, row.name)
        assert.is_true(row.predicted_s > 0 and row.measured_s > 0)
        assert.equal(math.abs(row.off) <= bench.within, row.within)
      end
    end)

    it("writes a machine that plans open", function()
      local dir = require("spec.support.folder").new()
      finally(function() dir:remove() end)
      local m = machine.open(dir:write("mine.lua", bench.text("mine", {threads = 1,
        dtype = "f32"})))
      assert.same({"mine", 1}, {m.name, m.cpu.threads})
      assert.is_true(m.rate.step_s > 0)
      -- what encoders of clips and captions do is among them
      local classes, linear = {}, 0
      for op, points in pairs(m.ops) do
        classes[op:match "^%S+"] = true
        -- by whichever way this processor goes
        linear = linear + (op:find "^linear .*f32, f32, f32$" and #points or 0)
      end
      assert.is_true(linear > 2)
      assert.is_true(classes.conv3d and classes.group_norm and classes.rms_norm or false, json.encode(classes))
    end)
  end)

  it("measures the trainer's graph, with and without grad_checkpoint", function()
    local cuts, step = require "moonreel.bench.cuts", require "moonreel.bench.step"
    local cut, product_peak = cuts.all.stdit3, core.product_peak
    local peak
    finally(function()
      cuts.all.stdit3, core.product_peak = cut, product_peak
    end)
    core.product_peak = function(...)
      peak = product_peak(...)
      return peak
    end
    cuts.all.stdit3 = {family = "stdit3", latent = {2, 4, 2, 8, 8}, model = {depth = 2,
      hidden_size = 64, num_heads = 4, caption_channels = 32, model_max_length = 8}}
    local r = step.measure{threads = 1, dtype = "f32", seconds = 0.01}
    local without, with = r.by_settings[1], r.by_settings[2]
    assert.same({grad_checkpoint = false}, without.settings)
    assert.same({grad_checkpoint = true}, with.settings)
    assert.is_true(with.arena_bytes < without.arena_bytes)
    assert.equal(without.arena_bytes, r.arena_bytes)
    assert.is_true(r.planned_bytes > r.arena_bytes)
    assert.is_true(r.rounds >= 3 and r.ratio > 0 and with.ratio > 0 and r.flop > 0)
    -- what is compared with PyTorch, where both do blocks twice; the peak stays what it is
    core.product_peak = function() return peak end
    r = step.measure{threads = 1, dtype = "f32", seconds = 0.01, grad_checkpoint = true}
    assert.equal(with.arena_bytes, r.arena_bytes)

    -- the same choice as the trainer's: nothing is done twice unless blocks are
    local program = require "moonreel.trainer.program"
    local options, recompute = program.recomputation(without.settings)
    assert.is_true(options.no_cheap)
    assert.is_false(recompute(1, 0))
    options, recompute = program.recomputation(with.settings)
    assert.is_false(options.no_cheap)
    assert.is_true(recompute(2, 1))
    local calls = {}
    for _, row in ipairs(r.ops) do
      calls[row.op] = row.calls
    end
    -- two pairs of blocks: spatial, temporal and two across per pair
    assert.equal(8, calls.attention)
  end)

  describe("the step of MMDiT", function()
    local cuts, step = require "moonreel.bench.cuts", require "moonreel.bench.step"
    local cut, product_peak = cuts.all.mmdit, core.product_peak
    teardown(function() cuts.all.mmdit, core.product_peak = cut, product_peak end)
    setup(function()
      core.product_peak = function() return {m = 16, n = 16, k = 16, own = true, how = "packed"} end
      cuts.all.mmdit = {family = "mmdit", latent = {2, 3, 2, 8, 8}, text = 5,
        model = nn.merged(cut.model, require "spec.support.small_mmdit", {depth = 2,
        depth_single_blocks = 3, fused_qkv = false})}
    end)

    it("has its blocks, its text and a gradient of each weight", function()
      local r = step.measure{model = "mmdit", threads = 1, dtype = "f32", seconds = 0.01}
      local calls = {}
      for _, row in ipairs(r.ops) do
        calls[row.op] = row.calls
      end
      -- one of each block, over text and cells
      assert.equal(5, calls.attention)
      assert.equal(5, calls.attention_grad)
      assert.is_true(r.by_settings[2].arena_bytes < r.arena_bytes)
      assert.is_true(r.loss > 0 and r.loss < 100)
      local other = step.measure({model = "mmdit", threads = 1, dtype = "f32", seconds = 0.01,
        grad_checkpoint = true})
      assert.equal(r.by_settings[2].arena_bytes, other.arena_bytes)
      assert.near(r.loss, other.loss, 1e-5 * r.loss)
    end)

    it("runs in turn with another program's: the median of the ratios counts", function()
      local asked, said, seconds, best = {}, 0, {1, 40, 1000, 70, 30, 80}, step.best
      finally(function() step.best = best end)
      step.best = function() return 10 end
      local function say() said = said + 1 end
      local r = step.measure({model = "mmdit", threads = 1, dtype = "f32", seconds = 0.05},
        function(result)
          assert.equal(1, said)
          return function(budget)
            asked[#asked + 1] = {result.dtype, budget}
            return {seconds = seconds[#asked], peak_bytes = 4 * result.peak_bytes,
              import_bytes = 2 * result.peak_bytes}
          end
        end, say)
      -- the first answer chooses the way and does not count
      assert.same({{"f32", 0.01}, {"f32", 0.01}, {"f32", 0.01}, {"f32", 0.01}, {"f32", 0.01},
        {"f32", 0.01}}, asked)
      assert.same({70, 7, 0.25, 0.5}, {r.peer.seconds, r.speedup, r.memory_share,
        r.memory_share_net})
      r = step.measure({model = "mmdit", threads = 1, dtype = "f32", seconds = 0.01}, function()
        return function() return nil, "it is not there" end
      end)
      assert.same({nil, nil, "it is not there"}, {r.peer, r.speedup, r.peer_missing})
    end)

    it("is asked of PyTorch at its sizes, in the way that was faster", function()
      local asked, ways = nil, {}
      local peer = require "moonreel.bench.peer"
      local run_peer = peer.run
      finally(function() peer.run = run_peer end)
      peer.run = function(_, what, request)
        asked, ways[#ways + 1] = {what, request}, request.way
        return {name = "PyTorch", version = "9.9", dtype = "float32", seconds = 1000, runs = 3,
          compiled = true, product_tflops = 1, tflops = 1, peak_bytes = 1e12, import_bytes = 5e11}
      end
      local text = require("spec.support.printed")(function()
        local _, show = require("moonreel.bench.show").step{model = "mmdit", threads = 1,
          dtype = "f32", seconds = 0.01, peer = true, python = "python"}
        show()
      end)
      assert.equal("step", asked[1])
      assert.same({"both", "compiled", "compiled", "compiled", "compiled", "compiled"}, ways)
      assert.same({"f32", "mmdit", {2, 3, 2, 8, 8}, 5, 2, 3}, {asked[2].dtype, asked[2].family,
        asked[2].latent, asked[2].text, asked[2].model.depth, asked[2].model.depth_single_blocks})
      assert.matches("^step of mmdit: .+\n  now in turn with PyTorch's: at most 600 s .+\n"
        .. "  PyTorch 9.9, float32 %(its products: 1.000 TFLOP/s%), by torch.compile: .+ x the "
        .. "speed, 0.%d%d x the memory %(0.%d%d x without the import%)", text)
    end)

    it("is refused by another name", function()
      local _, exit = run("step", "--model=flux")
      assert.equal(2, exit)
    end)
  end)

  it("tells what each phase of building a graph takes, depth by depth", function()
    local graph = require "moonreel.bench.graph"
    local depths = graph.depths
    finally(function() graph.depths = depths end)
    graph.depths = {2, 4}
    local rows = graph.measure{threads = 1, seconds = 0}
    assert.same({2, 4}, {rows[1].depth, rows[2].depth})
    for _, phase in ipairs(graph.phases) do
      assert.is_true(rows[1][phase] > 0 and rows[2][phase] > 0)
    end
    -- nodes outside the blocks are as many in both
    assert.is_true(rows[2].nodes > 1.5 * rows[1].nodes and rows[2].nodes < 2 * rows[1].nodes)
  end)

  describe("with --python", function()
    local peer = require "moonreel.bench.peer"
    local python = os.tmpname()
    local function answers(shell)
      local f <close> = assert(io.open(python, "w"))
      f:write("#!/bin/sh\n[ \"$1\" = -c ] && exit\n", shell, "\n")
      f:close()
      os.execute("chmod +x " .. python)
    end
    teardown(function() os.remove(python) end)

    it("compares with the PyTorch of that interpreter", function()
      answers(
        [[echo '{"name": "PyTorch", "version": "9.9", "dtype": "float32", "seconds": 1000, "runs": 1, "product_tflops": 1, "peak_bytes": 1, "import_bytes": 0}']])
      local text, exit = run("demo-step", "--python", python, "--seconds=0.01", "--threads=1")
      assert.equal(0, exit)
      assert.matches("PyTorch 9.9, float32 %(its products: 1.000 TFLOP/s%), one run: 1000.0000 s",
        text)
    end)

    it("says why there is no comparison", function()
      answers([[echo '{"name": "PyTorch", "version": "9.9", "least_seconds": 118}']])
      local result, reason = peer.run(python, "step", {})
      assert.is_nil(result)
      assert.matches("PyTorch 9.9 would need at least 118 s", reason)
      answers("exec sleep 20")
      peer.deadline_s = 0.2
      result, reason = peer.run(python, "step", {})
      assert.is_nil(result)
      assert.matches("did not finish in 0.2 s", reason)
      -- what compiles in its turn has longer, and is not cut off with the others
      peer.compile_s = 0.4
      for _, way in ipairs { "both", "compiled" } do
        assert.matches("did not finish in 0.4 s", select(2, peer.run(python, "step", { way = way })))
      end
    end)

    it("refuses one without PyTorch before it measures", function()
      local _, exit = run("step", "--python=/no/python")
      assert.equal(2, exit)
    end)
  end)

  it("holds both steps and PyTorch to each instruction set and dtype, in programs of their own",
    function()
    local real, asked = process.run, {}
    finally(function() process.run = real end)
    process.run = function(words)
      asked[#asked + 1] = table.concat(words, " ")
      return {exit = 0, output = json.encode{seconds = 2, ratio = 0.5, peak_bytes = 1000000,
        speedup = 3, memory_share = 0.25, peer = {seconds = 6, isa = "AVX2",
        peak_bytes = 4000000}}}
    end
    local rows = require("moonreel.bench.each").measure{threads = 1, seconds = 1, python = "py"}
    assert.equal(#asked, #rows)
    for i, row in ipairs(rows) do
      assert.matches(("MOONREEL_ISA=%s .*bench %s %%-%%-json %%-%%-dtype %s .*%%-%%-threads 1 .*py")
        :format(row.isa, row.what:gsub("%-", "%%-"), row.dtype), asked[i])
      assert.equal(row.isa == "avx2", asked[i]:match "ONEDNN_MAX_CPU_ISA=AVX2" ~= nil)
      assert.same({2, 0.5, 1, 6, "AVX2", 4, 3, 0.25}, {row.seconds, row.ratio, row.mb,
        row.peer_seconds, row.peer_isa, row.peer_mb, row.speedup, row.memory_share})
      assert.equal(row.what == "demo-step" and 6 or row.dtype == "bf16" and 2.5 or 1.25,
        row.speedup_aim)
    end
    assert.same({"step", "demo-step"}, {rows[1].what, rows[#rows].what})
    process.run = function() return {exit = 1, output = ""} end
    assert.has_error(function() require("moonreel.bench.each").measure{threads = 1, seconds = 1} end)
  end)

  it("plans a recipe's buckets as a run compiles them, and keeps what its bound has room for",
    function()
    local shapes = require "moonreel.bench.shapes"
    local function measure(most_bytes)
      return shapes.measure(require("moonreel.settings").bake("tiny/demo",
        {"model.depth=1", "model.hidden_size=16", "model.num_heads=2", "text_encoder.width=16",
        "model.caption_channels=16", "programs_bytes=" .. most_bytes}), 2)
    end
    local all = measure(1 << 30)
    assert.same({2, 2, 0}, {all.shapes, all.kept, all.closed})
    assert.is_true(all.bytes <= 2 * all.each_bytes + 1 and all.median_s <= all.most_s)
    local few = measure(all.bytes - 1)
    assert.same({2, 1, 1}, {few.shapes, few.kept, few.closed})
    assert.is_true(few.bytes <= few.bound)
  end)

  it("says rates of the demo's step as JSON", function()
    local text, exit = run("demo-step", "--json", "--no-peer", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.near(r.tokens / r.seconds, r.tokens_per_s, 1)
    assert.equal(r.shape.batch * r.shape.frames * r.shape.rows * r.shape.cols, r.tokens)
    assert.is_nil(r.peer)
  end)

  it("says what watching the weights takes from training, at the usual interval", function()
    local text, exit = run("weights", "--json", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(100, r.every)
    assert.is_true(r.seconds > 0 and r.share > 0 and r.share < r.seconds / r.step_s)
    assert.equal(0.005, r.aim)
  end)

  it("says what trackers and all that is watched take from a step", function()
    local text, exit = run("follow", "--json", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.is_true(r.rounds >= 3 and r.first_s > 0 and r.second_s > 0 and r.ratio > 0.2
      and r.cpu_ratio > 0.5)
    assert.equal(1.02, r.aim)
    text, exit = run("follow", "--journal=40", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    assert.matches("follow: a step of the demo takes [%d.]+ ms behind a journal of 40 steps, [%d.]+ "
      .. "ms in a new run: [%d.]+ times as long", text)
  end)

  it("says what Muon takes of a step beside AdamW", function()
    local text, exit = run("muon", "--json", "--seconds=0.01", "--threads=1")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(3, r.rounds)
    assert.is_true(r.adamw_s > 0 and r.muon_s > 0)
    assert.equal(1.25, r.aim)
    assert.matches("muon: %a+%d+, 1 threads: .* times as long, 1.25 is allowed: ",
      (run("muon", "--seconds=0.01", "--threads=1")))
  end)

  it("says what a save takes from training, beside its limit", function()
    local text, exit = run("save", "--json", "--seconds=0.01")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(256 << 20, r.bytes)
    assert.is_true(r.stall_s > 0)
    assert.near(1.3 * r.copy_s + 0.005, r.limit_s, 1e-9)
    assert.same({"page cache", "disk"}, {r.readings[1].from, r.readings[2].from})
    for _, one in ipairs(r.readings) do
      assert.is_true(one.share > 0 and one.verify_rate > 0 and one.cpu_rate > 0)
    end
  end)

  it("tells of encoders as soon as each is measured, and of nothing twice", function()
    local encoders = require "moonreel.bench.encoders"
    local measure, lines, print_before = encoders.measure, {}, print
    local row = {part = "encode 4 pictures", dtype = "f32", seconds = 2, tflops = 0.5, aim = 1.3,
      peer = {seconds = 3, peak_bytes = 7e6}, speedup = 1.5}
    -- what came before a failure is there
    encoders.measure = function(_, tell)
      tell("machine", {isa = "avx2", threads = 3})
      tell("part", row)
      error("the rest", 0)
    end
    _G.print = function(line) lines[#lines + 1] = line end
    local ok, problem = pcall(require("moonreel.cli.bench").run, {"encoders", "--no-peer"})
    encoders.measure = function() return {} end
    local quiet = pcall(require("moonreel.cli.bench").run, {"encoders", "--no-peer"})
    encoders.measure, _G.print = measure, print_before
    assert.is_true(not ok and quiet)
    assert.equal("the rest", problem)
    assert.same({"encoders: avx2, 3 threads", "  encode 4 pictures, f32: 2.000 s, 0.500 TFLOP/s; "
      .. "PyTorch 3.000 s, 7 MB: 1.50 x, asked 1.3 x: met"}, lines)
  end)

  it("says what encoders take: a clip, its programs, a caption from its file", function()
    local encoders = require "moonreel.bench.encoders"
    local small = {frames = 6, height = 16, width = 24, pictures = 4,
      spatial = {block_out_channels = {8, 8, 8, 8}, layers_per_block = 1, norm_num_groups = 4},
      temporal = {filters = 8, num_res_blocks = 1, num_groups = 4}}
    for part, defaults in pairs {spatial = require("moonreel.models.autoencoder_2d.kl").defaults,
        temporal = require("moonreel.models.opensora_vae.temporal").defaults} do
      setmetatable(small[part], {__index = defaults})
    end
    local r = encoders.autoencoder("f32", 1, 0, small)
    assert.is_true(r.weight_bytes > 0 and r.encode.layer_bytes > 0)
    assert.is_true(r.decode.peak_bytes >= r.encode.peak_bytes)
    local runs, flop = {}, {}
    for i, row in ipairs(r.parts) do
      assert.equal(encoders.parts[i], row.part)
      runs[i], flop[i] = row.runs, row.flop
      assert.is_true(row.seconds > 0)
    end
    -- one micro batch of four pictures beside one of two, one piece in time
    assert.same({1, 1, 1, 1}, runs)
    assert.is_true(flop[4] > flop[1] and flop[3] > flop[2])

    local path = os.tmpname()
    os.remove(path)
    path = path .. "/t5-v1_1-small"
    require("datasets.demo.weights").hole(path)
    local c = encoders.caption(path, "f32", 1)
    assert.is_true(c.seconds > 0)
    -- every block once, beside the norm at the end and the biases, which were read before
    assert.is_true(c.read_bytes < c.weight_bytes and c.read_bytes > 0.999 * c.weight_bytes)
    require("moonreel.core.base").remove_dir(path:match("^(.*)/"))

    local fast = require("moonreel.core.exec").device("cpu", 1):compute "bf16"
    local b = encoders.block(fast, 1, 0.01, "t5-v1_1-small")
    assert.equal("block of t5-v1_1-small", b.part)
    -- products of 4 x 300 tokens: q, k, v, o of 512 x 384, three of 512 x 1024; scores
    local tokens = 4 * 300
    assert.near(2 * tokens * (4 * 512 * 384 + 3 * 512 * 1024) + 4 * tokens * 300 * 384, b.flop,
      0.02 * b.flop)
    assert.is_true(b.share > 0 and b.seconds > 0)
  end)

  describe("of a clip through the Hunyuan autoencoder", function()
    local vae, asked, lines, real
    local modules = {"moonreel.bench.apart", "moonreel.bench.vae"}

    -- turns of ours take 1, 2, 4 s, those of the peer 3, 8, 8 s
    before_each(function()
      local seconds = {1, 2, 4}
      real, asked, lines = {}, {}, {}
      for i, name in ipairs(modules) do
        real[i], package.loaded[name] = package.loaded[name], nil
      end
      local turns = 0
      package.loaded["moonreel.bench.apart"] = function(...)
        asked[#asked + 1] = table.concat({...}, " ")
        turns = turns + 1
        return {seconds = seconds[(turns - 1) % 3 + 1], peak_bytes = 50 + turns}
      end
      vae = require "moonreel.bench.vae"
    end)

    after_each(function()
      for i, name in ipairs(modules) do
        package.loaded[name] = real[i]
      end
    end)

    local function measured(ask)
      return vae.measure({threads = 1, seconds = 0, dtype = "f32", narrow = 2}, ask,
        function(what) lines[#lines + 1] = what end)
    end

    it("asks the peer in turn at the same sizes: the median of the ratios counts", function()
      local seconds, turns = {3, 8, 8}, 0
      local r = measured(function(request)
        turns = turns + 1
        asked[#asked + 1] = ("%s %s %d %d of %s"):format(request.job, request.dtype,
          request.turns, request.seconds, table.concat(request.fields.block_out_channels, " "))
        assert.same({frames = 17, height = 144, width = 256}, request.clip)
        return {name = "diffusers", version = "1", seconds = seconds[(turns - 1) % 3 + 1],
          peak_bytes = 220, import_bytes = 108}
      end)
      assert.same({"machine", "job", "job"}, lines)
      assert.same({"vae turn encode f32 1 2", "encode f32 1 0 of 64 128 256 256"},
        table.move(asked, 3, 4, 1, {}))
      assert.same({12, "vae turn decode f32 1 2"}, {#asked, asked[7]})
      local encode, decode = table.unpack(r.jobs)
      assert.same({2, 8, 3, 3}, {encode.seconds, encode.peer.seconds, encode.speedup,
        encode.rounds})
      -- the most of all turns, the peer's with and without what its imports take
      assert.same({56, 56 / 220, 0.5}, {decode.peak_bytes, decode.memory_share,
        decode.memory_share_net})
    end)

    it("stands alone where the peer fails, with the reason", function()
      local times = 0
      local r = measured(function()
        times = times + 1
        return nil, "it is not there"
      end)
      assert.equal(2, times)  -- once a job
      assert.same({2, "it is not there"}, {r.jobs[1].seconds, r.jobs[1].peer_missing})
      assert.is_nil(r.jobs[1].peer or r.jobs[1].speedup)
      assert.is_nil(measured().jobs[2].peer_missing)
    end)

    it("refuses widths without whole groups before it measures", function()
      assert.has_error(function()
        vae.measure({threads = 1, seconds = 0, narrow = 3}, nil, function() end)
      end)
      assert.same({}, asked)
    end)

    it("is encoded and decoded once a turn", function()
      vae.clip = {frames = 1, height = 16, width = 8}
      for _, job in ipairs(vae.jobs) do
        local turn = vae.turn(job, "f32", 1, 4)
        assert.is_true(turn.seconds > 0 and turn.peak_bytes > 60e6)
      end
      assert.same({128, 256, 512, 512}, vae.fields(1).block_out_channels)
    end)

    it("says that there is no peer before it measures", function()
      local print_before = print
      _G.print = function(line) lines[#lines + 1] = line end
      finally(function() _G.print = print_before end)
      vae.measure = function(_, ask, tell)
        assert.is_nil(ask)
        tell("job", {job = "encode", dtype = "f32", seconds = 2, peak_bytes = 7e6, rounds = 3})
        return {}
      end
      require("moonreel.cli.bench").run{"vae", "--python=/no/python"}
      _G.print = print_before
      assert.matches("^vae: /no/python cannot import diffusers and torch: moonreel alone", lines[1])
      assert.equal("  encode, f32: 2.00 s, peak 7 MB; medians of 3 turns", lines[2])
    end)
  end)

  it("makes a folder for the checkpoint that it saves, and takes none that is there", function()
    local _, exit = run("save", "--seconds=0.01", "--dir=spec")
    assert.equal(2, exit)
    assert.is_true(require("moonreel.core.base").exists("spec/lua"))
  end)

  it("says what a user waits for, each beside its aim", function()
    local text, exit = run("cli", "--json", "--seconds=0.01")
    assert.equal(0, exit)
    local rows = json.decode(text).cli
    local aims = {}
    for i, row in ipairs(rows) do
      aims[i] = row.aim_s
    end
    assert.same({0.01, 0.05, 0.1, 1, 1, 1, 5, 5, 10, 3}, aims)
    for i, row in ipairs(rows) do
      assert.is_true(row.seconds > 0 and row.cpu_s > 0 and row.cpu_s < 30, row.what)
      assert.equal(i > 3 and (i < 6 or i > 8), row.private_bytes ~= nil)
      if row.private_bytes then
        assert.is_true(row.private_bytes < row.aim_bytes, row.private_bytes)
      end
    end
    assert.matches("^bake opensora%-2%.0/train/stage2_i2v %(%d+ values%)$", rows[1].what)
  end)

  it("measures limits with a name for the way that was taken", function()
    local peak = core.product_peak("f32", 1, 0.001)
    assert.is_true(peak.tflops > 0)
    assert.matches("^o", peak.how)
    assert.is_true(core.product_rate("f32", 1, 64, 64, 64, true, 0.001) > 0)
    assert.is_true(core.memory_rate(1 << 20, 1, 0.001) > 0)
  end)

  it("refuses what it does not know", function()
    local _, exit = run("speed")
    assert.equal(2, exit)
    _, exit = run("step", "--threads=many")
    assert.equal(2, exit)
    _, exit = run("step", "--dtype=f16")
    assert.equal(2, exit)
  end)

  it("has a row for each kernel whose op exists", function()
    local ops = require "moonreel.core.op"
    local named = {}
    for _, row in ipairs(require("moonreel.bench.kernels").rows) do
      named[row.op] = row.limit
    end
    assert.equal("bytes", named.layer_norm_modulate)
    assert.is_function(ops.attention)
  end)

  it("holds convolutions beside the product peak and what a peer says", function()
    local conv = require "moonreel.bench.conv"
    local rows, peak = conv.rows, core.product_peak
    -- looking for the best product takes seconds
    core.product_peak = function() return {m = 64, n = 64, k = 64, own = true} end
    finally(function() conv.rows, core.product_peak = rows, peak end)
    conv.rows = {{what = "pictures", x = {1, 1, 6, 5, 8}, filters = 8, kernel = {1, 3, 3},
      pad = {0, 0, 1, 1, 1, 1}},
      {what = "dc_ae", x = {1, 3, 4, 6, 8}, filters = 16, kernel = {3, 3, 3}, groups = 4,
        stride = {1, 2, 2}, pad = {1, 1, 1, 1, 1, 1}}}
    local asked = {}
    local found = conv.measure({threads = 1, seconds = 0.01, dtype = "f32"}, function(row, machine)
      asked[#asked + 1] = row.what .. " " .. row.dtype .. " " .. machine.threads
      return 3 * row.seconds
    end)
    assert.same({"pictures f32 1", "dc_ae f32 1"}, asked)
    for _, row in ipairs(found) do
      -- the best windows of ours are no slower than their median
      assert.is_true(row.ratio >= 2.999, row.ratio)
      assert.is_true(row.of_peak > 0 and row.tflops > 0)
    end
    -- taps of all channels, twice, at each position
    assert.near(2 * 6 * 5 * 9 * 8 * 8, found[1].tflops * 1e12 * found[1].seconds, 1)
    assert.equal(2 * 3 * 2 * 3 * 27 * 2 * 16, found[2].flop)
    assert.equal("pictures 1x3x3 8 to 8", found[1].name)
    assert.equal("dc_ae 3x3x3 / 1x2x2 8 to 16 in 4 groups", found[2].name)
    assert.same({conv.rows[2]}, conv.named "/ 1x2x2")
    assert.has_error(function()
      require("moonreel.cli.bench").run{"conv", "--layer", "hunyuen"}
    end)
  end)

  it("tells what packing weights takes of models' products", function()
    local packing = require "moonreel.bench.packing"
    local models = packing.models
    packing.models = {{model = "trained", layers = {{40, 24, 16}, {8, 16, 16}}},
      {model = "frozen", layers = {{8, 16, 16}}, frozen = true}}
    local rows = packing.measure{threads = 1, dtype = "f32", seconds = 0.01}
    packing.models = models
    assert.same({"trained", "frozen"}, {rows[1].model, rows[2].model})
    assert.same({2, 1}, {rows[1].bytes, rows[2].bytes})
    for i, row in ipairs(rows) do
      assert.equal(i == 1, row.step ~= nil)
      assert.equal(i == 1, row.saved ~= nil)
      assert.is_true(row.forward >= 0 and row.forward <= row.largest)
    end
    assert.is_true(rows[1].saved <= rows[1].step)
  end)

  it("tells what ranks tell each other, beside MPI's own calls where there is MPI", function()
    local text, exit = run("comm", "--seconds", "0.01", "--bytes", "200000", "--json")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(2, r.ranks)
    assert.equal(#require("moonreel.bench.comm").rows(4), #r.rows)
    for _, row in ipairs(r.rows) do
      assert.is_true(row.shared > 0 and row.plain > 0 and row.sealed > 0 and row.hidden > 0)
      assert.is_true(row.sealed_ratio > 0 and row.hidden_ratio > 0)
      assert.is_true(r.mpi_missing ~= nil or row.mpi > 0 and row.raw > 0 and row.ratio > 0)
    end
  end)

  it("says what a step by ranks costs beyond their parts of it", function()
    local text, exit = run("ranks", "--seconds", "0.01", "--dtype", "f32", "--json")
    assert.equal(0, exit)
    local r = json.decode(text)
    assert.equal(2, r.ranks)
    -- f32 gradients reduced, f32 weights gathered: half of each goes to the other rank, and a sum
    assert.equal(0, (r.sent - 8) % (2 * 4 * 16384))
    for i, row in ipairs(r.stages) do
      assert.same({ i - 1, row.reported + 8 }, { row.stage, row.sent })
    end
    for _, name in ipairs(require("moonreel.bench.ranks").parts) do
      assert.is_true(r.seconds[name] > 0 and r.seconds[name .. "_cpu"] >= 0)
    end
  end)

  it("takes what is set apart from the step, and sets the rest beside a rank's part", function()
    local got = require("moonreel.bench.ranks").judge({
      { one = 8, threads = 5, apart = 4.4, reported = 1, together = 6, one_cpu = 8, threads_cpu = 8,
        apart_cpu = 4, reported_cpu = 1, together_cpu = 5 } }, 2)
    assert.same({ 1.25, 1.1, 1.2 }, { got.ratio, got.beside, got.of_threads })
    assert.same({ 1, 1 }, { got.ratio_cpu, got.beside_cpu })
  end)

  it("says what planning an epoch takes, each line beside its aim", function()
    local output, code = run("order", "--rows", "1000")
    assert.equal(0, code)
    for _, line in ipairs {"plan +[%d.]+ +ns/row +<= 50 .- 0%.1 M rows, 894 buckets", "plan +[%d.]+ "
        .. "+MB +<= 16 ", "select .- us/sample +<= 75 ", "state +[%d.]+ +kB +<= 4 ",
        "look up .- us/row +<= 4 .- 1000 rows, warm", "open .- ms +<= 1 "} do
      assert.matches("\n" .. line, output)
    end
  end)
end)

describe("peers of data", function()
  it("are absent where the interpreter is", function()
    local result, reason = require("moonreel.bench.peer").data("/no/python3", "pyav", {})
    assert.is_nil(result)
    assert.matches("cannot start /no/python3", reason, 1, true)
  end)
end)
