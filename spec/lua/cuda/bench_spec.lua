--- What cuda/bench/verify runs on a GPU, tried on the emulated one.
-- Covers: cuda/bench/kernels.lua cuda/bench/step.lua cuda/bench/sizes.lua cuda/bench/drawn.lua
-- cuda/bench/verify cuda/bench/clips.lua
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
    local out, err, code = folder.moonreel("cuda/bench/sizes.lua cudaemu small")
    assert.equal(0, code, out .. err)
    assert.matches("peers: left out", out)
    assert.matches("\n1 70 1 72 +%d+%.%d +%d+%.%d +[%d.]+ +%- +%-\n", out)
    assert.equal(3, select(2, out:gsub("frames 1 2 4 5 72, 72 +[yd][xw ]", "")))
    out, err, code = folder.moonreel("cuda/bench/sizes.lua cudaemu small",
      "MOONREEL_CUDAEMU=fail=12")
    assert.not_equal(0, code, out)
    assert.matches("launch failure", err)
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
