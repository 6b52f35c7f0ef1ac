-- Rendering from a checkpoint alone.
-- Covers: lua/moonreel/sample/init.lua lua/moonreel/sample/rflow.lua
-- Covers: lua/moonreel/sample/nonfinite.lua
local base = require "moonreel.core.base"
local demo_data = dofile "spec/support/demo_data.lua"
local json = require "moonreel.core.json"
local process = require "moonreel.core.process"
local sample = require "moonreel.sample"
local signalled = dofile "spec/support/signalled.lua"

local out = demo_data.scratch()
local runs = {}

-- the small run in a folder, trained once, with further words
local function train(folder, ...)
  local place = out .. "/" .. (folder or "runs")
  if not runs[place] then
    demo_data.moonreel("train", "tiny/demo", "dataset.data_path=" .. demo_data.path(),
      "outputs=" .. place, "threads=1", "num_workers=1",
      "steps=4", "warmup_steps=0", "model.depth=1", "model.hidden_size=32",
        "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32", ...)
    runs[place] = place .. "/001-demo"
  end
  return runs[place]
end

local PROMPTS = {"a red circle moving left", "a blue square"}

local function render(options, change, run)
  local sampler <close> = sample.open(run or train(), options)
  local r = {prompts = PROMPTS, seeds = {1, 2}, steps = 3, batch_size = 2}
  for k, v in pairs(change or {}) do
    r[k] = v
  end
  return sampler:render(r)
end

describe("sample", function()
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("renders the same bytes from the same checkpoint, prompt and seed", function()
    local a, b = render(), render()
    assert.equal(4, #a)
    for i = 1, 4 do
      assert.equal(6 * 3 * 32 * 32, #a[i].pixels)
      assert.is_true(a[i].pixels == b[i].pixels)
    end
    assert.equal("a red circle moving left", a[2].prompt)
    assert.equal(2, a[2].seed)
    assert.is_false(a[1].pixels == a[2].pixels)
    assert.is_false(a[1].pixels == a[3].pixels)
  end)

  it("refuses latents that are not finite, with prompt, seed and exit code 7", function()
    -- its one step leaves weights whose products overflow
    local run = train("huge", "steps=1", "optim.lr=1e15")
    local good, problem = pcall(render, nil, { seeds = { 3 } }, run)
    assert.is_false(good)
    assert.same({ "MR_E_NONFINITE", 7 }, { problem.code, problem.exit })
    assert.matches("sample: prompt 'a red circle moving left', seed 3: %d+ of %d+ numbers of its "
      .. "latents are not finite after step 1, expected finite numbers; in .*step%-000000000001 "
      .. "all weights are finite, so a computation of the model overflows; the largest weight is "
      .. "%d.*e%+%d+, in '[%w_.]+'; try: ", problem.message)
    -- weights that are not finite are named; the first step is the last
    local sampler <close> = sample.open(train())
    local name = sampler.pipe.params:list()[5].name
    local region = sampler.exec:has "weights" and "weights" or sampler.exec:regions()[1].name
    local values = sampler.exec:param(region, name)
    sampler.exec:set_param(region, name, values * (0 / 0))
    local seen = 0
    good, problem = pcall(sampler.render, sampler, { prompts = PROMPTS, seeds = { 3 }, steps = 3,
      watch = function() seen = seen + 1 end })
    assert.same({ false, 7, 0 }, { good, problem.exit, seen })
    assert.matches("not finite after step 1, .* weights of '"
      .. name:gsub("%p", "%%%0") .. "' are not finite, (%d+) of %1; try: ", problem.message)
  end)

  it("reports the predicted time of its steps before the first, and counts them", function()
    local report = {}
    render(nil, { progress = function(done, total, expected_s)
      report[#report + 1] = { done, total, expected_s }
    end })
    -- short steps end before their time is known
    assert.same({ { 0, 6 }, { 1, 6 }, { 2, 6 }, { 3, 6 }, { 4, 6 }, { 5, 6 }, { 6, 6 } }, report)
    local total, expected
    local ok = pcall(render, nil, { steps = 1000000, progress = function(done, all, seconds)
      assert(done == 0)
      total, expected = all, seconds
      error "enough"
    end })
    assert.is_false(ok)
    assert.equal(2000000, total)
    assert.is_true(expected > 1 and expected < 1e6, expected)
  end)

  it("refuses arguments of Open-Sora 2.0, with the argument", function()
    local sampler <close> = sample.open(train(), { overrides = { { key = "cond_type",
      text = "i2v_head", argument = "--cond-type i2v_head" } } })
    local good, problem = pcall(sampler.render, sampler, { prompts = PROMPTS })
    assert.is_false(good)
    assert.matches("%-%-cond%-type i2v_head: sampling.cond_type = \"i2v_head\": "
      .. "model.type = STDiT3 does not use it; try: leave it out, or use a model of Open%-Sora 2.0",
      problem.message)
  end)

  it("renders different clips for averaged and raw weights, guidance and steps", function()
    local ema = render()[1].pixels
    assert.is_false(ema == render({ema = false})[1].pixels)
    assert.is_false(ema == render(nil, {guidance = 1})[1].pixels)
    assert.is_false(ema == render(nil, {steps = 4})[1].pixels)
  end)

  it("reads averages from ema.pt in a checkpoint of the reference if they are complete",
    function()
      local ckpt, torch = require "moonreel.ckpt", dofile "spec/support/torch_file.lua"
      local from <close> = ckpt.open(train() .. "/ckpt/step-000000000004")
      local settings = require("moonreel.settings").from_json(from.manifest.settings, "spec")
      local folder, rows, entries, dict = out .. "/reference", {}, {}, {}
      base.make_dir(folder .. "/model")
      for _, name in ipairs(from:names()) do
        if require("moonreel.ckpt.names").kind(name) == "weights" then
          local info, key = from:info(name), tostring(#dict)
          rows[#rows + 1] = {name = name, dtype = info.dtype, shape = info.shape,
            ptr = from:read(name), bytes = info.bytes}
          -- all averages are one
          local n, stride, strides = require("moonreel.core.tensor").count(info.shape), 1, {}
          for i = #info.shape, 1, -1 do
            strides[i], stride = stride, stride * info.shape[i]
          end
          entries[#entries + 1] = {"a/data/" .. key, ("\0\0\x80\x3f"):rep(n)}
          dict[#dict + 1] = torch.text(name) .. torch.tensor("FloatStorage", key, n, 0,
            torch.ints(table.unpack(info.shape)), torch.ints(table.unpack(strides)))
        end
      end
      ckpt.write(folder .. "/model/model.safetensors", rows)
      table.insert(entries, 1, {"a/data.pkl", torch.pickle(torch.dict(table.unpack(dict)))})
      torch.zip(folder .. "/ema.pt", entries)
      local function bias(ema)
        local sampler <close> = sample.open(folder, {settings = settings, ema = ema})
        return sampler.exec:param("w", "final_layer.linear.bias"):to("f32")
      end
      assert.equal(1, bias(true):min())
      assert.is_true(bias(false):max() < 1)
      table.remove(rows)
      ckpt.write(folder .. "/model/model.safetensors", rows)
      local ok, err = pcall(bias, false)
      assert.is_false(ok)
      assert.matches("reference: 1 tensors are missing, the first is", err.message)
    end)

  it("refuses weights of images that are only a start for training, with a proposal", function()
    local ckpt, path = require "moonreel.ckpt", out .. "/PixArt.safetensors"
    ckpt.write(path, {{name = "blocks.0.scale_shift_table", dtype = "f32", shape = {6, 32},
      ptr = ("\0"):rep(4 * 6 * 32), bytes = 4 * 6 * 32}})
    local from <close> = ckpt.open(train() .. "/ckpt/step-000000000004")
    local settings = require("moonreel.settings").from_json(from.manifest.settings, "spec")
    local ok, err = pcall(sample.open, path, {settings = settings})
    assert.is_false(ok)
    assert.matches("PixArt%.safetensors: weights of PixArt%-Sigma for training, without %d+ "
      .. "tensors that a rendering needs, such as '.-'; try: moonreel train RECIPE "
      .. "%-%-ckpt%-path .-PixArt",
      err.message)
  end)

  it("takes its size from a resolution at an aspect ratio", function()
    local function size(...)
      local defaults = require("moonreel.settings").bake("tiny/demo",
        {"sampling.height=none", "sampling.width=none", "sampling.frames=1", ...})
      local ok, clips = pcall(render, {defaults = defaults}, {seeds = {5}, prompts = {"a"}})
      return ok and clips[1].height .. "x" .. clips[1].width or tostring(clips)
    end
    local small = "resolutions={'s': {'pixels': 600, 'aspects': [[1.5, 30, 20], [0.67, 20, 30], "
      .. "[1.0, 24, 24]]}}"
    assert.equal("20x30", size("resolution=s", "aspect-ratio=2:3", small))
    assert.equal("24x24", size("resolution=s", small))
    assert.matches("no size is set; try: %-%-size", size())
    assert.matches("resolution=x: sampling.resolution: there is no resolution 'x'; expected one "
      .. "of .*144p",
      size("resolution=x"))
    assert.matches("expected HEIGHT:WIDTH as 9:16, got 'wide'$",
      size("resolution=s", small, "aspect_ratio=wide"))
  end)

  it("renders other sizes and lengths than it was trained on", function()
    local clip = render(nil, {frames = 3, height = 24, width = 40, seeds = {5}})[1]
    assert.equal(3 * 3 * 24 * 40, #clip.pixels)
  end)

  -- the model's inputs in each step of a rendering; `compat` of its settings
  local function given(change, compat)
    local sampler <close> = sample.open(train())
    sampler.settings = setmetatable({compat = compat}, {__index = sampler.settings})
    local predict, steps = sampler.pipe.predict_guided, {}
    function sampler.pipe.predict_guided(self, g, io)
      g:output("model.len", io.text_len)
      g:output("model.fps", io.fps)
      g:output("model.t", io.t)
      return predict(self, g, io)
    end
    local r = {prompts = PROMPTS, seeds = {3}, steps = 4, batch_size = 2, fps = 10,
      watch = function(i, prog)
        steps[i] = {len = prog:get("model.len"):totable(), fps = prog:get("model.fps"):totable(),
          t = prog:get("model.t"):totable(), z_start = prog:get("z_start")}
      end}
    for k, v in pairs(change or {}) do
      r[k] = v
    end
    return steps, sampler:render(r)
  end

  it("gives the model the length of each prompt, and the null caption whole", function()
    assert.same({24, 13, 56, 56}, given()[1].len)
    assert.same({24, 13}, given{guidance = 1}[1].len)
    -- the reference cuts the null caption to the length of the prompt
    assert.same({24, 13, 24, 13}, given(nil, "opensora-1.2")[1].len)
  end)

  it("gives the model the requested frame rate, and 120 for a still", function()
    assert.same({10, 10, 10, 10}, given()[1].fps)
    assert.same({120, 120, 120, 120}, given{frames = 1}[1].fps)
  end)

  it("follows the times that the recipe shifts, from the noise of the seed", function()
    local steps = given()
    assert.equal(4, #steps)
    for i, step in ipairs(steps) do
      local u = 1 - (i - 1) / 4
      for b = 1, 4 do
        assert.near(1000 * 2 * u / (1 + u), step.t[b], 1e-3)
      end
    end
    local T = require "moonreel.core.tensor"
    local noise = T.new("f32", {24, 6, 4, 4}):fill_normal(3, "sample_noise")
    for b = 0, 1 do
      assert.is_true(noise:bytes() == steps[1].z_start:slice(0, b, b + 1):clone():bytes())
    end
  end)

  it("starts with the reference's noise of the whole batch under compat", function()
    local T = require "moonreel.core.tensor"
    local noise = T.new("f32", {2, 24, 6, 4, 4}):fill_torch_normal(3)
    assert.is_true(noise:bytes() == given(nil, "opensora-1.2")[1].z_start:bytes())
  end)

  it("batches only renderings of one seed under compat, and keeps their order", function()
    local T = require "moonreel.core.tensor"
    local steps, clips = given({seeds = {3, 4}}, "opensora-1.2")
    local noise = T.new("f32", {2, 24, 6, 4, 4}):fill_torch_normal(4)
    assert.is_true(noise:bytes() == steps[1].z_start:bytes())
    local list = {}
    for i, clip in ipairs(clips) do
      list[i] = clip.prompt .. clip.seed
    end
    local a, b = table.unpack(PROMPTS)
    assert.same({a .. 3, a .. 4, b .. 3, b .. 4}, list)
    -- a seed's clip does not depend on the other seeds
    local _, alone = given({seeds = {4}}, "opensora-1.2")
    assert.is_true(alone[1].pixels == clips[2].pixels and alone[2].pixels == clips[4].pixels)
  end)

  it("needs only the checkpoint, in any folder, and writes MP4 and PNG", function()
    local moved = out .. "/elsewhere"
    os.execute(("cp -r '%s/ckpt/step-000000000004' '%s'"):format(train(), moved))
    local text = demo_data.moonreel("sample", moved, "--prompt", "a red circle",
      "--seed", "3", "--steps", "2", "--out", out .. "/files", "--json")
    local files = json.decode(text).files
    assert.equal(1, #files)
    assert.equal(out .. "/files/sample_0000.mp4", files[1].path)
    assert.equal(6, require("moonreel.data").scan(files[1].path).frames)
    demo_data.moonreel("sample", moved, "--prompt", "a red circle", "--seed",
      "1", "--frames", "1", "--size", "16x24", "--steps", "2", "--out", out .. "/still")
    local facts = require("moonreel.data").scan(out .. "/still/sample_0000.png")
    assert.equal(16, facts.height)
    assert.equal(24, facts.width)
  end)

  it("keeps all files of earlier renderings", function()
    local folder = require "spec.support.folder"
    local place = folder.new()
    finally(function() place:remove() end)
    local function again(words)
      return folder.moonreel(("sample '%s' --steps 1 --frames 1 --seed 1 --prompt %s"):format(
        train(), words), ("cd '%s' &&"):format(place.path))
    end
    -- without a folder each rendering has a number of its own
    assert.equal("samples/001/sample_0000.png\n", (again "a"))
    assert.equal("samples/002/sample_0000.png\n", (again "b"))
    assert.equal("clips/sample_0000.png\n", (again "a --out clips"))
    local before = base.read_file(place.path .. "/clips/sample_0000.png")
    local output, errors, code = again "b --out clips --guidance 3"
    assert.same({ "", 2 }, { output, code })
    assert.matches("sample: clips/sample_0000%.png exists already, from an earlier rendering",
      errors)
    assert.equal(2, (select(3, again "b --save-dir clips")))
    assert.equal(before, base.read_file(place.path .. "/clips/sample_0000.png"))
    -- allowed: other names, other files in the folder, and --overwrite
    assert.equal("clips/b_0000.png\n", (again "b --out clips --sample-name b"))
    assert.equal("clips/sample_0001.png\n", (again "a b --out clips --start-index 1"))
    assert.equal("clips/sample_0000.png\n", (again "b --out clips --overwrite --guidance 3"))
    assert.are_not.equal(before, base.read_file(place.path .. "/clips/sample_0000.png"))
    -- one existing file among several counts
    output, errors, code = again "a b c --out clips --start-index 1"
    assert.equal("", output)
    assert.equal(2, code)
    assert.matches("clips/sample_0001%.png exists", errors)
    -- one name for two prompts of one rendering
    assert.equal("twice/a.png\ntwice/sample_0001.png\n",
      (again "a a --prompt-as-path --out twice"))
    -- a rendering that fails leaves no folder
    assert.equal(7, (select(3, again "a --guidance 1e300")))
    assert.is_false(base.exists(place.path .. "/samples/003"))
  end)

  it("removes its partial file and its new folder when a signal stops it", function()
    -- the file is open, and the next piece of the video is being rendered
    local done = signalled("INT", [[
      local output = require "moonreel.sample.output"
      local file = output.file
      function output.file(...)
        local one = file(...)
        local write = one.write
        function one:write(pixels)
          write(self, pixels)
          send()
        end
        return one
      end]], {"sample", train(), "--prompt", "a red circle", "--loop", "2",
      "--condition-frame-length", "2", "--num-frames", "6", "--steps", "1", "--save-dir",
      out .. "/stopped"})
    assert.equal(130, done.exit, done.output)
    assert.matches("stopped by a signal; finished videos are kept\n$", done.output)
    assert.is_false(base.exists(out .. "/stopped"))
  end)

  it("takes a recipe for its newest run, and refuses invalid values by name", function()
    local there = base.exists "samples" -- of the user who works in this folder
    train()
    demo_data.moonreel("sample", "tiny/demo", "outputs=" .. out .. "/runs",
      "--prompt", "x", "--seed", "1", "--steps", "1",
      "--out", out .. "/recipe")
    local function fails(pattern, ...)
      local r = process.run({"/bin/sh", "-c", '"$@" 2>&1', "sh", process.program(), "sample", ...},
        "", {deadline_s = 600, output_bytes = 1 << 20})
      assert.equal(2, r.exit, r.output)
      assert.matches(pattern, r.output)
    end
    fails("%-%-size: expected HxW or H W in pixels, got '16'", train(), "--prompt", "x",
      "--size", "16")
    fails("%-%-steps: expected a whole number of at least 1, got '0'", train(),
      "--prompt", "x", "--steps", "0")
    fails("no prompt", train())
    fails("%-%-raw and %-%-ema exclude each other", train(), "--prompt", "x", "--raw", "--ema")
    fails("no checkpoint of 'demo'", "tiny/demo", "outputs=" .. out .. "/none",
      "--prompt", "x")
    assert.same(there, base.exists("samples"))
  end)
end)
