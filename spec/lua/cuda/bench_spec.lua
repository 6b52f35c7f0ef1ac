--- Runs the parts of cuda/bench/verify on the emulated GPU.
-- Covers: cuda/bench/kernels.lua cuda/bench/step.lua cuda/bench/sizes.lua cuda/bench/drawn.lua
-- cuda/bench/verify cuda/bench/clips.lua cuda/bench/cudnn_peer.c
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"

-- builds with sanitizers have no emulated GPU
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

  it("runs a step of the model, and names the op when the GPU is lost", function()
    local out, err, code = folder.moonreel("cuda/bench/step.lua cudaemu small")
    assert.equal(0, code, out .. err)
    -- seconds, planned seconds, TFLOP/s, share, gaps, planned and given GB, no peer
    assert.matches("\nsmall +[%d.]+ +[%d.e-]+ +[%d.]+ +%d+%% +[%d.]+%% +[%d.]+ +[%d.]+ +%-\n", out)
    out, err, code = folder.moonreel("cuda/bench/step.lua cudaemu small",
      "MOONREEL_SYNC=1 MOONREEL_CUDAEMU=fail=160,error=214")
    assert.not_equal(0, code)
    -- with MOONREEL_SYNC the error names the step and the line that made it
    assert.matches("step%.lua:%d+: silu 'silu#%d+': .*uncorrectable ECC error", out .. err)
  end)

  it("measures attention and convolutions, and fails when a result is NaN", function()
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

  it("times cuDNN's convolutions without PyTorch if the library is installed", function()
    local programs = process.program():match "^(.*)/"
    -- exit code and all output
    local function peer(words, before)
      local result = process.run({ "/bin/sh", "-c", ("%s '%s/cudnn_peer_cudaemu' %s 2>&1"):format(
        before, programs, words) }, "", { deadline_s = 600 })
      return result.exit, result.output
    end
    local scene = ("MOONREEL_CUDNN='%s/cudnn_scene.so'"):format(programs)
    -- frames, pictures, and a number of filters without an algorithm
    local code, text = peer("3 1 2 4 5 72 72 0 2 1 4 6 8 16 1 1 1 4 4 8 11 1", scene)
    assert.equal(0, code, text)
    assert.equal("cuDNN 91900\n0 0 0\n0 0 0\n- - -\n", text)
    for _, case in ipairs {
      { 2, "use: cudnn_peer RUNS", "1 2 3", scene },
      { 2, "use: cudnn_peer RUNS", "0", scene },
      { 1, "^cudnn_peer: 0: expected a number of at least 1", "1 0 1 4 4 8 8 1", scene },
      { 1, "^cudnn_peer: no cuDNN: /nothing.so: ", "1", "MOONREEL_CUDNN=/nothing.so" },
      { 1, "nccl_scene.so: has no cudnnGetVersion; try: cuDNN 9", "1",
        ("MOONREEL_CUDNN='%s/nccl_scene.so'"):format(programs) },
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

  it("refuses devices other than its two", function()
    local result = process.run({ "/bin/sh", "-c", "cuda/bench/verify tpu 2>&1" }, "",
      { deadline_s = 600 })
    assert.equal(2, result.exit)
    assert.matches("cannot verify 'tpu'; try: cuda or cudaemu", result.output)
    result = process.run({ "/bin/sh", "-c", "cuda/bench/verify --packed nothing.tar.gz 2>&1" }, "",
      { deadline_s = 600 })
    assert.equal(2, result.exit)
    assert.matches("no file 'nothing.tar.gz'; try: cuda/bench/pack", result.output, 1, true)
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

  -- A copy of the tree without builds. The emulated GPU replaces a real one: its programs have the
  -- names of those for a GPU, in a file like that of cuda/bench/pack.
  local function stand_in(dir)
    local programs, tree = process.program():match "^(.*)/", dir.path .. "/tree"
    assert(os.execute(("mkdir -p '%s/cuda' '%s/bin' packed"):format(tree, dir.path)
      :gsub("packed", "'" .. dir.path .. "/packed'")))
    for name in ("core datasets lua recipes spec"):gmatch "%a+" do
      assert(os.execute(("ln -s \"$PWD/%s\" '%s/'"):format(name, tree)))
    end
    assert(os.execute(("cp -r cuda/bench '%s/cuda/'"):format(tree)))
    for name, program in pairs { moonreel = process.program(),
      ["libmoonreel_cuda.so"] = programs .. "/libmoonreel_cudaemu.so",
      spec_prim_sm80 = programs .. "/spec_cuda_prim_sm80",
      spec_prim_sm90a = programs .. "/spec_cuda_prim_sm90a",
      spec_prim_rates = programs .. "/spec_cuda_prim_rates",
      spec_kernels_products = programs .. "/spec_cuda_kernels_products",
      spec_kernels_attention = programs .. "/spec_cuda_kernels_norms" } do
      assert(os.execute(("ln -s '%s' '%s/packed/%s'"):format(program, dir.path, name)))
    end
    -- only a few ops
    dir:write("packed/spec_kernels_contract", ([[#!/bin/sh
case $1 in --rows) echo silu; echo linear; exit ;; esac
[ "$BAD_ROW" != "${1:-all}" ] && [ -z "$BAD_ROW" -o -n "$1" ] || { echo "$BAD_ROW is off"; exit 1; }
exec '%s/spec_cuda_kernels_contract' ${1:-silu linear}
]]):format(programs))
    -- verify asks for the sizes of a GPU; run those of the emulator
    dir:write("packed/spec_kernels_real", ([[#!/bin/sh
[ "$1" = real ] && exec '%s/spec_cuda_kernels_real'
]]):format(programs))
    dir:write("bin/nvidia-smi", [[#!/bin/sh
case $1 in *name*) echo "Emulated GPU 80" ;; *compute_cap*) echo "$CAPABILITY" ;; *) echo 580.1 ;; esac
]])
    assert(os.execute(("chmod +x '%s/bin/nvidia-smi' '%s'/packed/spec_kernels_*"):format(
      dir.path, dir.path)))
    assert(os.execute(("tar -C '%s' -czf '%s/pack.tar.gz' packed"):format(dir.path, dir.path)))
    -- exit code, output, and the table in the result folder
    return function(words, variables)
      local result = process.run({ "/bin/sh", "-c", ("cd '%s' && PATH=\"%s/bin:$PATH\" "
        .. "VERIFY_PATIENCE=5 MOONREEL_NVML='%s/nvml_scene.so' PYTHON=none %s sh "
        .. "cuda/bench/verify --packed "
        .. "'%s/pack.tar.gz' --out '%s/out' %s 2>&1"):format(tree, dir.path, programs, variables,
          dir.path, dir.path, words) }, "", { deadline_s = 600 })
      local file = io.open(dir.path .. "/out/table.txt")
      local rows = file and file:read "a" or ""
      return result.exit, result.output, rows
    end
  end

  it("works on a GPU without counts, on another architecture, and without a GPU", function()
    local dir = folder.new()
    local verify = stand_in(dir)
    local parts = "--parts 'doctor layouts ops real rates'"
    -- the newest architecture
    local code, text, rows = verify(parts, "CAPABILITY=9.0 MOONREEL_CUDAEMU=uncounted")
    assert.equal(0, code, text)
    for _, name in ipairs { "unpack", "doctor", "layouts", "ops", "real", "rates" } do
      assert.matches("\n?" .. name .. " +%d+ s  passed\n", rows)
    end
    assert.matches("written: cuda/bench/results/EmulatedGPU80.md", text, 1, true)
    -- an older one: verify does not run the sm_90a specs
    code, text = verify(parts, "CAPABILITY=8.0 MOONREEL_CUDAEMU=uncounted,arch=80")
    assert.equal(0, code, text)
    -- a failing op is named, and later parts run
    code, text, rows = verify("--parts 'ops layouts'",
      "CAPABILITY=9.0 MOONREEL_CUDAEMU=uncounted BAD_ROW=linear")
    assert.equal(1, code, text)
    assert.matches("\nlayouts +%d+ s  passed\n", rows)
    assert.matches("\nops +%d+ s  FAILED\n", rows)
    assert.matches("rows that fail alone: linear\n", text)
    -- no driver: nothing else runs, and the table comes back
    code, text, rows = verify("", "CAPABILITY= MOONREEL_CUDAEMU=absent MOONREEL_NVML=/nothing.so")
    assert.equal(1, code, text)
    assert.matches("\ndoctor +%d+ s  FAILED\nthe others +not run, they need doctor\n", rows)
    assert.matches("driver", text)
    -- a truncated file: there is nothing to run
    assert(os.execute(("truncate -s 60 '%s/pack.tar.gz'"):format(dir.path)))
    code, text, rows = verify("", "CAPABILITY=9.0 MOONREEL_CUDAEMU=uncounted")
    assert.equal(1, code, text)
    assert.matches("^unpack +%d+ s  FAILED\nthe others +not run, they need unpack\n", rows)
    dir:remove()
  end)

  it("runs three tools of compute-sanitizer, and fails if one finds an error", function()
    local dir <close> = folder.new()
    local verify = stand_in(dir)
    -- records which tool runs which program; the tool named in FINDS reports an error
    dir:write("bin/compute-sanitizer", ([[#!/bin/sh
echo "$@" >> '%s/asked'
case "$*" in *"--tool ${FINDS:-nothing} "*) echo "1 hazard"; exit 9 ;; esac
]]):format(dir.path))
    assert(os.execute(("chmod +x '%s/bin/compute-sanitizer'"):format(dir.path)))
    -- the profiler runs kernels at real sizes
    dir:write("bin/ncu", ([[#!/bin/sh
echo "ncu $@" >> '%s/asked'
]]):format(dir.path))
    assert(os.execute(("chmod +x '%s/bin/ncu'"):format(dir.path)))
    local parts = "--parts 'counters sanitizer races barriers'"
    local code, text = verify(parts, "CAPABILITY=9.0 MOONREEL_CUDAEMU=uncounted")
    assert.equal(0, code, text)
    local file <close> = assert(io.open(dir.path .. "/asked"))
    local asked = file:read "a"
    assert.matches("ncu %-%-csv [^\n]*spec_kernels_real real\n", asked)
    assert.matches("--tool memcheck [^\n]*kernels.lua cuda small", asked)
    for _, tool in ipairs{"racecheck", "synccheck"} do
      assert.matches("--tool " .. tool .. " [^\n]*spec_kernels_contract linear attention ", asked)
    end
    code, text = verify(parts, "CAPABILITY=9.0 MOONREEL_CUDAEMU=uncounted FINDS=racecheck")
    assert.equal(1, code, text)
    assert.matches("races +%d+ s  FAILED", text)
    assert.matches("barriers +%d+ s  passed", text)
  end)

  it("has runs that read everything from a cache and no longer need the clips", function()
    local dir = folder.new()
    local out, err, code = folder.moonreel("cuda/bench/clips.lua " .. dir.path .. "/made")
    assert.equal(0, code, out .. err)
    for i = 1, 3 do
      os.remove(("%s/made/%d.png"):format(dir.path, i))
    end
    out, err, code = folder.moonreel(("train %s/made/small.lua outputs=%s device=cpu"):format(
      dir.path, dir.path))
    assert.equal(0, code, out .. err)
    assert.matches("  done: step 4, ", out .. err)
    dir:remove()
  end)
end)
