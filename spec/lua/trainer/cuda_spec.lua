--- Whole runs with `device=cuda` on the emulated GPU. They are near the CPU's run, and have the
-- same bits in another order of streams and blocks and after a resume. Errors, exit codes and
-- files are checked for a GPU that cannot be used, is full or is lost in a step.
-- Covers: cuda/rt/device.c cuda/rt/driver_emu.cpp core/exec/device.c
-- lua/moonreel/trainer/setup.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local data = require "moonreel.data"
local demo_data = require "spec.support.demo_data"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"

local plugin = process.program():gsub("[^/]*$", "libmoonreel_cudaemu.so")
-- builds with sanitizers have no emulated GPU
local describe_built = base.exists(plugin) and describe or pending

describe_built("device=cuda", function()
  local dir
  setup(function()
    dir = folder.new()
    base.make_dir(dir.path .. "/out")
    local list = { "path,text" }
    for i = 1, 3 do
      local pixels = {}
      for k = 1, 3 * 32 * 32 do
        pixels[k] = string.char((k * i * 7 + k // 256 * 31) % 256)
      end
      data.png(("%s/%d.png"):format(dir.path, i), table.concat(pixels), { height = 32, width = 32 })
      list[i + 1] = ("%d.png,picture %d"):format(i, i)
    end
    dir:write("clips.csv", table.concat(list, "\n") .. "\n")
    data.ingest(dir.path .. "/clips.csv", dir.path .. "/clips.mrx")
    dir:write("small.lua", ([[return recipe.extend("tiny/demo") {
  dataset = { data_path = "%s/clips.mrx" }, outputs = "%s/out",
  bucket_config = recipe.replace { ["32px"] = {
    [1] = { 1.0, 1 } } },
  model = { depth = 1, hidden_size = 32, num_heads = 2, patch_size = { 1, 2, 2 },
    caption_channels = 32 },
  text_encoder = { width = 32 }, steps = 2, warmup_steps = 1, ckpt_every = 1, threads = 1,
  num_workers = 1 }]]):format(dir.path, dir.path))
    os.execute(("mkdir '%s/plugins' && ln -s '%s' '%s/plugins/libmoonreel_cuda.so'"):format(
      dir.path, plugin, dir.path))
  end)
  teardown(function() dir:remove() end)

  -- Runs moonreel; returns its output and exit code. Measuring the emulated GPU takes longer than a
  -- run, so its rates are given, except where the spec is about measuring.
  local function train(gpu, words, probed)
    local out, err, code = folder.moonreel(("train '%s/small.lua' %s"):format(dir.path, words),
      ("MOONREEL_PLUGINS='%s/plugins' MOONREEL_CUDAEMU='%s'"):format(dir.path,
        probed and gpu or gpu .. ",rated"))
    return out .. err, code
  end

  local function trains(...)
    local text, code = train(...)
    assert.equal(0, code, text)
  end

  local function run_dir(name) return demo_data.run_dir(dir.path .. "/out", name) end

  local function losses(name)
    local list = {}
    for line in io.lines(run_dir(name) .. "/journal.jsonl") do
      local row = json.decode(line)
      if row.kind == "step" then
        list[#list + 1] = row.loss
      end
    end
    return list
  end

  it("trains near the CPU's losses, in any order of its work, and resumes", function()
    trains("", "device=cpu name=cpu")
    trains("seed=0", "device=cuda name=first", true)
    trains("seed=5,eager", "device=cuda name=second steps=1")
    trains("seed=6", "device=cuda name=second steps=2 load=latest")
    local equal = "equal: %d+ tensors, bit for bit"
    assert.matches(equal, demo_data.moonreel("ckpt", "diff", run_dir("first"), run_dir("second")))
    local cpu, gpu = losses("cpu"), losses("first")
    assert.equal(2, #cpu)
    for i = 1, 2 do
      -- sums of bf16 values are rounded at other places
      assert.is_true(math.abs(gpu[i] - cpu[i]) < 1e-2 * cpu[i], gpu[i] .. " " .. cpu[i])
    end
  end)

  it("trains linear layers of 8 bits near the CPU's losses", function()
    trains("", "device=cpu name=eight_cpu model.linear=f8")
    trains("seed=3", "device=cuda name=eight model.linear=f8")
    local cpu, gpu, plain = losses("eight_cpu"), losses("eight"), losses("cpu")
    for i = 1, 2 do
      assert.is_true(math.abs(gpu[i] - cpu[i]) < 1e-2 * cpu[i], gpu[i] .. " " .. cpu[i])
      assert.is_true(cpu[i] ~= plain[i])
    end
    -- a GPU that lacks such products is refused with what it lacks
    local text, code = train("arch=80", "device=cuda name=early model.linear=f8")
    assert.equal(1, code, text)
    assert.matches("in f8_e4m3: .*compute capability 8%.9 or newer.*try: operands of bf16", text)
  end)

  it("trains by ranks with a GPU each, near the CPU's losses", function()
    local runs, list = {}, { process.program(), "-n", "2", dir:write("train.lua", [[
for i = 1, #arg do
  local words = {}
  for word in arg[i]:gmatch "%S+" do
    words[#words + 1] = word
  end
  assert(require("moonreel.cli.train").run(words) == 0)
end
]]) }
    local tiny = "dtype=fp32 model.hidden_size=16 text_encoder.width=16 text_encoder.num_heads=1 "
      .. "text_encoder.rows=64 model.caption_channels=16 ckpt_every=2"
    local function run(name, device, words)
      runs[#runs + 1] = name
      list[#list + 1] = ("%s/small.lua %s device=%s name=%s %s"):format(dir.path, tiny, device,
        name, words)
    end
    run("cpu0", "cpu", "")
    local stages = os.getenv "MOONREEL_EVERY" and { 1, 2, 3 } or { 3 }
    for _, stage in ipairs { 0, table.unpack(stages) } do
      run("zero" .. stage, "cuda", "plugin_config.zero_stage=" .. stage)
    end
    run("ring", "cuda", "plugin_config.zero_stage=2 plugin_config.sp_size=2 "
      .. "plugin_config.sequence_parallelism_mode=ring_attn")
    -- both runs have one batch a step, so they have a reference of their own
    run("tokens", "cpu", "plugin_config.sp_size=2")
    local done = process.run({ "/bin/sh", "-c", 'exec "$0" "$@" 2>&1', "/usr/bin/env",
      "MOONREEL_PLUGINS=" .. dir.path .. "/plugins", "MOONREEL_CUDAEMU=devices=2,seed=2,rated",
      table.unpack(list) }, "", { deadline_s = 600, output_bytes = 1 << 20 })
    assert.equal(0, done.exit, done.output)
    for _, name in ipairs(runs) do
      local gpu, cpu = losses(name), losses((name == "ring" or name == "tokens") and "tokens"
        or "cpu0")
      assert.equal(2, #gpu)
      for i = 1, 2 do
        assert.is_true(math.abs(gpu[i] - cpu[i]) <= 1e-5 * cpu[i], name)
      end
    end
    for _, stage in ipairs(stages) do
      assert.matches("equal: %d+ tensors, bit for bit", demo_data.moonreel("ckpt", "diff",
        run_dir "zero0", run_dir("zero" .. stage)))
    end
  end)

  it("reports what an unusable GPU lacks", function()
    for gpu, words in pairs { absent = "device=cuda: .*no NVIDIA driver is installed",
        none = "no CUDA%-capable device", old = "the driver supports CUDA 11%.8",
        ["arch=75"] = "compute capability 7%.5, expected 8%.0 or newer" } do
      local text, code = train(gpu, "device=cuda name=unusable")
      assert.equal(1, code, text)
      assert.matches(words, text)
      assert.matches("try: ", text)
      assert.is_nil(run_dir("unusable"))
    end
  end)

  it("reports the rank for which there is no GPU", function()
    local text, code = train("", "-n 2 device=cuda name=unusable restarts=0")
    assert.equal(2, code, text)
    assert.matches("rank 1: [^\n]*device=cudaemu:1: invalid device ordinal", text)
    -- the other rank waits for the error of this one, not for data that never comes
    assert.is_nil(text:find("all_gather", 1, true), text)
    assert.is_nil(run_dir("unusable"))
  end)

  it("reports the bucket that does not fit and the largest batch that does", function()
    local text, code = train("memory=40000000",
      "device=cuda name=full bucket_config.32px.1='{ 1.0, 500 }'")
    assert.equal(5, code, text)
    assert.matches("bucket_config.*a batch of 500 at 32x32 needs [%d.]+ %a+ in addition to "
      .. "parameters and their state, and [%d.]+ MiB are free; the largest that fits is %d+",
      text)
    assert.is_nil(run_dir("full"))
  end)

  it("reports the memory of parameters and state when these alone do not fit", function()
    local text, code = train("memory=2000000", "device=cuda name=full")
    assert.equal(5, code, text)
    assert.matches("device=cuda: parameters and their state need [%d.]+ MiB, and [%d.]+ MiB are "
      .. "free for them[^\n]*\n  try: ", text)
    assert.is_nil(run_dir("full"))
  end)

  it("keeps the newest checkpoint whole when it is lost in a step", function()
    local text, code = train(("lost=%s/lost/001-lost/ckpt/step-000000000002,error=214"):format(
      dir.path), "device=cuda steps=400 name=lost outputs=" .. dir.path .. "/lost")
    assert.equal(6, code, text)
    -- the error names who chose the GPU, what the GPU reported and the newest checkpoint
    assert.matches("device=cuda: the GPU: uncorrectable ECC error[^\n]*\n  step %d+ is saved",
      text)
    local newest <close> = ckpt.newest(dir.path .. "/lost/001-lost")
    assert.is_true(newest.step >= 2)
    demo_data.moonreel("ckpt", "verify", dir.path .. "/lost/001-lost")
  end)
end)
