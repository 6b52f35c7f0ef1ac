describe("bench encoders", function()
  it("reports each encoder as soon as it is measured, once", function()
    local encoders = require "moonreel.bench.encoders"
    local measure, lines, print_before = encoders.measure, {}, print
    local row = {part = "encode 4 pictures", dtype = "f32", seconds = 2, tflops = 0.5, aim = 1.3,
      peer = {seconds = 3, peak_bytes = 7e6}, speedup = 1.5}
    -- results before a failure are kept
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
      .. "PyTorch 3.000 s, 7 MB: 1.50 x, target 1.3 x: met"}, lines)
  end)

  it("reports the cost of a clip, its programs, and a caption streamed from its file", function()
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
    -- one micro-batch of four pictures and one of two, one piece in time
    assert.same({1, 1, 1, 1}, runs)
    assert.is_true(flop[4] > flop[1] and flop[3] > flop[2])

    local path = os.tmpname()
    os.remove(path)
    path = path .. "/t5-v1_1-small"
    require("datasets.demo.weights").hole(path)
    local c = encoders.caption(path, "f32", 1)
    assert.is_true(c.seconds > 0)
    -- each block once; the last norm and the biases were read before
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
end)
