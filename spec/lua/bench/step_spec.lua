-- Covers: lua/moonreel/bench/step.lua lua/moonreel/bench/cuts.lua
local core = require "moonreel.core.bench"
local nn = require "moonreel.nn"
local run = require "spec.support.bench_run"

describe("bench step", function()
  local cuts, step = require "moonreel.bench.cuts", require "moonreel.bench.step"

  it("keeps the best of at least four runs after a warm-up run", function()
    local n = 0
    local best = step.best(function() n = n + 1 end, 0)
    assert.equal(5, n)
    assert.is_true(best >= 0 and best < 1)
  end)

  it("times each node by its best run", function()
    local n = 0
    local prog = {time = function()
    end, times = function() return {{op = "a", seconds = n}, {op = "b", seconds = 9 - n}} end}
    local _, rows = step.best(function() n = n + 1 end, 0, prog)
    assert.same({{op = "a", seconds = 2}, {op = "b", seconds = 4}}, rows)
  end)

  it("measures the trainer's graph, with and without grad_checkpoint", function()
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
    -- the times compared with PyTorch are those with recomputation on both sides; the peak is not
    core.product_peak = function() return peak end
    r = step.measure{threads = 1, dtype = "f32", seconds = 0.01, grad_checkpoint = true}
    assert.equal(with.arena_bytes, r.arena_bytes)

    -- the same choice as the trainer's: only blocks are recomputed
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
    -- two pairs of blocks: spatial, temporal and two cross attentions a pair
    assert.equal(8, calls.attention)
  end)

  describe("bench step of MMDiT", function()
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
      -- one block of each kind, over text and cells
      assert.equal(5, calls.attention)
      assert.equal(5, calls.attention_grad)
      assert.is_true(r.by_settings[2].arena_bytes < r.arena_bytes)
      assert.is_true(r.loss > 0 and r.loss < 100)
      local other = step.measure({model = "mmdit", threads = 1, dtype = "f32", seconds = 0.01,
        grad_checkpoint = true})
      assert.equal(r.by_settings[2].arena_bytes, other.arena_bytes)
      assert.near(r.loss, other.loss, 1e-5 * r.loss)
    end)

    it("alternates with another program; the median of the ratios counts", function()
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
      -- the first answer chooses the kernel and does not count
      assert.same({{"f32", 0.01}, {"f32", 0.01}, {"f32", 0.01}, {"f32", 0.01}, {"f32", 0.01},
        {"f32", 0.01}}, asked)
      assert.same({70, 7, 0.25, 0.5}, {r.peer.seconds, r.speedup, r.memory_share,
        r.memory_share_net})
      r = step.measure({model = "mmdit", threads = 1, dtype = "f32", seconds = 0.01}, function()
        return function() return nil, "it is not there" end
      end)
      assert.same({nil, nil, "it is not there"}, {r.peer, r.speedup, r.peer_missing})
    end)

    it("requests the same sizes from PyTorch, in the mode that was faster", function()
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
      assert.matches("^step of mmdit: .+\n  now alternating with PyTorch: at most 600 s .+\n"
        .. "  PyTorch 9.9, float32 %(its products: 1.000 TFLOP/s%), by torch.compile: .+ x the "
        .. "speed, 0.%d%d x the memory %(0.%d%d x without the import%)", text)
    end)

    it("refuses another name", function()
      local _, exit = run("step", "--model=flux")
      assert.equal(2, exit)
    end)
  end)
end)
