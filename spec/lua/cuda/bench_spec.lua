--- What cuda/bench/verify runs on a GPU, tried on the emulated one.
-- Covers: cuda/bench/kernels.lua cuda/bench/step.lua cuda/bench/sizes.lua cuda/bench/drawn.lua
-- cuda/bench/verify cuda/bench/clips.lua cuda/bench/cudnn_peer.c
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- sanitizers build no emulated GPU
local built = base.exists((process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so")))
local describe_built = built and describe or pending

describe_built("cuda/bench", function()
  it("compares ops with the CPU's, and two runs with each other", function()
    local out, err, code = folder.moonreel("cuda/bench/kernels.lua cudaemu small")
    assert.equal(0, code, out .. err)
    local rows = select(2, out:gsub(" same ", ""))
    assert.equal(#require("moonreel.bench.kernels").rows, rows)
    assert.is_nil(out:find("WRONG", 1, true))
  end)

  it("takes a step of the model, and tells what is lost with the GPU", function()
    local out, err, code = folder.moonreel("cuda/bench/step.lua cudaemu small")
    assert.equal(0, code, out .. err)
    -- seconds, planned ones, TFLOP/s, share, gaps, planned and given GB, no peer
    assert.matches("\nsmall +[%d.]+ +[%d.e-]+ +[%d.]+ +%d+%% +[%d.]+%% +[%d.]+ +[%d.]+ +%-\n", out)
    out, err, code = folder.moonreel("cuda/bench/step.lua cudaemu small",
      "MOONREEL_SYNC=1 MOONREEL_CUDAEMU=fail=160,error=214")
    assert.not_equal(0, code)
    -- waited for one by one, steps are blamed with the line that made them
    assert.matches("step%.lua:%d+: silu 'silu#%d+': .*uncorrectable ECC error", out .. err)
  end)

  it("measures attention and convolutions, and fails when a result is no number", function()
    local out, err, code = folder.moonreel("cuda/bench/sizes.lua cudaemu small",
      "MOONREEL_CUDNN=/nothing.so")
    assert.equal(0, code, out .. err)
    assert.matches("peers: left out", out)
    assert.matches("\ncuDNN alone: left out", out)
    assert.matches("cudnn_peer: no cuDNN: /nothing.so", err, 1, true)
    assert.matches("\n1 70 1 72 +%d+%.%d +%d+%.%d +[%d.]+ +%- +%-\n", out)
    assert.equal(3, select(2, out:gsub("frames 1 2 4 5 72, 72 +[yd][xw ]", "")))
    out, err, code = folder.moonreel("cuda/bench/sizes.lua cudaemu small",
      "MOONREEL_CUDAEMU=fail=12")
    assert.not_equal(0, code, out)
    assert.matches("launch failure", err)
  end)

  it("times cuDNN's convolutions where the library is, without PyTorch", function()
    local beside = process.program():match "^(.*)/"
    -- exit code and all that is said
    local function peer(words, before)
      local result = process.run({ "/bin/sh", "-c", ("%s '%s/cudnn_peer_cudaemu' %s 2>&1"):format(
        before, beside, words) }, "", { deadline_s = 600 })
      return result.exit, result.output
    end
    local scene = ("MOONREEL_CUDNN='%s/cudnn_scene.so'"):format(beside)
    -- frames, pictures, and filters for which it has no algorithm
    local code, text = peer("3 1 2 4 5 72 72 0 2 1 4 6 8 16 1 1 1 4 4 8 11 1", scene)
    assert.equal(0, code, text)
    assert.equal("cuDNN 91900\n0 0 0\n0 0 0\n- - -\n", text)
    for _, case in ipairs {
      { 2, "use: cudnn_peer RUNS", "1 2 3", scene },
      { 2, "use: cudnn_peer RUNS", "0", scene },
      { 1, "^cudnn_peer: 0: expected a number of at least 1", "1 0 1 4 4 8 8 1", scene },
      { 1, "^cudnn_peer: no cuDNN: /nothing.so: ", "1", "MOONREEL_CUDNN=/nothing.so" },
      { 1, "nccl_scene.so: has no cudnnGetVersion; try: cuDNN 9", "1",
        ("MOONREEL_CUDNN='%s/nccl_scene.so'"):format(beside) },
      { 1, "^cudnn_peer: the GPU: no CUDA%-capable device", "1",
        scene .. " MOONREEL_CUDAEMU=none" },
      { 1, "^cudnn_peer: a tensor: uncorrectable ECC error", "1 1 2 4 5 8 8 0",
        scene .. " MOONREEL_CUDAEMU=fail=1,error=214" },
    } do
      code, text = peer(case[3], case[4])
      assert.equal(case[1], code, text)
      assert.matches(case[2], text)
    end
    local out, err
    out, err, code = folder.moonreel("cuda/bench/sizes.lua cudaemu small", scene)
    assert.equal(0, code, out .. err)
    assert.matches("\ncuDNN alone: cuDNN 91900\n", out)
    assert.equal(3, select(2, out:gsub("72, 72 +[yd][xw ] +[%d.]+ +[%d.]+ +0%.00\n", "")))
  end)

  it("is not begun for a device that is none of its two", function()
    local result = process.run({ "/bin/sh", "-c", "cuda/bench/verify tpu 2>&1" }, "",
      { deadline_s = 600 })
    assert.equal(2, result.exit)
    assert.matches("cannot verify 'tpu'; try: cuda or cudaemu", result.output)
    result = process.run({ "/bin/sh", "-c", "cuda/bench/verify --packed nothing.tar.xz 2>&1" }, "",
      { deadline_s = 600 })
    assert.equal(2, result.exit)
    assert.matches("no file 'nothing.tar.xz'; try: cuda/bench/pack", result.output, 1, true)
    for words, said in pairs {
      ["--parts 'doctor opps' cudaemu"] = "no part 'opps'; expected some of: doctor layouts ops ",
      ["--out"] = "verify: --out needs a value",
    } do
      result = process.run({ "/bin/sh", "-c", ("cuda/bench/verify %s 2>&1"):format(words) }, "",
        { deadline_s = 600 })
      assert.equal(2, result.exit)
      assert.matches(said, result.output, 1, true)
    end
  end)

  it("has runs that take everything from a cache, and need no clips any more", function()
    local dir = folder.new()
    local out, err, code = folder.moonreel("cuda/bench/clips.lua " .. dir.path .. "/made")
    assert.equal(0, code, out .. err)
    for i = 1, 3 do
      os.remove(("%s/made/%d.png"):format(dir.path, i))
    end
    out, err, code = folder.moonreel(("train %s/made/small.lua outputs=%s device=cpu"):format(
      dir.path, dir.path))
    assert.equal(0, code, out .. err)
    assert.matches("\ndone: step 4, ", out .. err)
    dir:remove()
  end)
end)
