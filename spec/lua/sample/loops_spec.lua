--- Renderings with conditions: pieces in sequence, references, scores, and files that are written
-- during a rendering.
-- Covers: lua/moonreel/sample/conditions.lua lua/moonreel/sample/request.lua
-- Covers: lua/moonreel/sample/output.lua lua/moonreel/sample/released.lua
-- Covers: lua/moonreel/cli/sample.lua
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local data = require "moonreel.data"
local json = require "moonreel.core.json"
local demo_data = dofile "spec/support/demo_data.lua"
local process = require "moonreel.core.process"
local sample = require "moonreel.sample"

local out = demo_data.scratch()
local run

local function trained()
  if not run then
    demo_data.moonreel("train", "tiny/demo", "dataset.data_path=" .. demo_data.path(),
      "outputs=" .. out .. "/runs", "threads=1", "num_workers=1", "steps=1",
      "warmup_steps=0", "model.depth=1", "model.hidden_size=32",
      "model.num_heads=2", "text_encoder.width=32",
      "model.caption_channels=32")
    run = out .. "/runs/001-demo"
  end
  return run
end

-- the clips of a prompt with these fields and options
local function render(fields, options)
  local overrides = {}
  for i, text in ipairs(fields or {}) do
    overrides[i] = require("moonreel.recipe.override").parse(text)
  end
  local sampler <close> = sample.open(trained(), {overrides = overrides, threads = 1})
  local r = {prompts = {"a red circle"}, seeds = {4}, steps = 2, batch_size = 2}
  for k, v in pairs(options or {}) do
    r[k] = v
  end
  return sampler:render(r), sampler
end

local FRAME = 3 * 32 * 32

local function frames(clip, from, to)
  return clip.pixels:sub(from * FRAME + 1, to * FRAME)
end

describe("sample with conditions", function()
  teardown(function()
    base.remove_dir(out)
    demo_data.remove()
  end)

  it("continues from the end of the piece before, and shows those frames once", function()
    local one = render()[1]
    local fields = {"loop=3", "condition_frame_length=2"}
    local three = render(fields)[1]
    assert.equal(6, one.frames)
    assert.equal(6 + 4 + 4, three.frames)
    assert.equal(14 * FRAME, #three.pixels)
    assert.is_true(frames(three, 0, 6) == one.pixels)
    -- a piece depends on the frames that it continues and on its number
    local other = render{"loop=2", "condition_frame_length=1"}[1]
    assert.equal(11, other.frames)
    assert.is_false(frames(other, 6, 7) == frames(three, 6, 7))
    assert.is_false(frames(three, 6, 10) == frames(three, 10, 14))
    assert.is_true(three.pixels == render(fields)[1].pixels)
    local ok, err = pcall(render, {"loop=2", "condition_frame_length=7"})
    assert.is_false(ok)
    assert.matches("condition_frame_length is 7, but a piece of 6 frames has 6 latent frames",
      tostring(err))
  end)

  it("keeps the frames that it continues, in each step", function()
    local starts, ends = {}, {}
    local clips, sampler = render({"loop=2", "condition_frame_length=2"}, {watch = function(i, prog)
      local list = i == 1 and starts or ends
      list[#list + 1] = prog:get(i == 1 and "z_start" or "z"):reshape{24, 6, 4, 4}
    end})
    assert.equal(2, #ends)
    -- the other frames start from noise of their own
    assert.is_false(starts[1]:slice(1, 2, 6):clone():bytes()
      == starts[2]:slice(1, 2, 6):clone():bytes())
    local again <close> = sample.open(trained(), {threads = 1})
    local before = again.codec:encode(T.from({2, 3, 32, 32}, frames(clips[1], 4, 6), "u8"))
    local kept = ends[2]:slice(1, 0, 2):clone()
    assert.same(before:clone():totable(), kept:totable())
    assert.is_truthy(sampler)
  end)

  it("needs the memory of one piece for any number of pieces", function()
    local function most(loop)
      local largest, programs = 0, 0
      render({"loop=" .. loop, "condition_frame_length=2"}, {sink = function()
        return {write = function(_, pixels) largest = math.max(largest, pixels.shape[1]) end,
          finish = function() return {} end}
      end, watch = function(_, prog) programs = math.max(programs, prog:plan().total) end})
      return largest .. " frames, " .. programs
    end
    assert.equal(most(2), most(5))
  end)

  -- sanitizers keep freed memory, so their peaks prove nothing
  if not process.program():find("/asan/", 1, true) then
    it("has the same peak of memory with one piece and with thirty", function()
      local code = [[
        local sample, bench = require "moonreel.sample", require "moonreel.core.bench"
        local override = require "moonreel.recipe.override"
        local sampler <close> = sample.open(%q, {threads = 1, overrides = {
          override.parse "loop=%d", override.parse "condition_frame_length=1"}})
        sampler:render{prompts = {"a"}, seeds = {1}, steps = 1, height = 128, width = 128,
          sink = function()
            return {write = function() end, finish = function() return {} end}
          end}
        print(bench.max_resident())]]
      local function peak(loop)
        local done = process.run({process.program(), "-e", code:format(trained(), loop)}, "",
          {deadline_s = 600})
        assert.equal(0, done.exit, done.output)
        return tonumber(done.output)
      end
      -- a piece is 1.2 MB of pixels, and four times that as floats
      local one, thirty = peak(1), peak(30)
      assert.is_true(thirty < one + (8 << 20), ("%d above %d"):format(thirty - one, one))
    end)
  end

  it("gives each piece its own text, and scores after the text", function()
    local len = {}
    local function lengths(fields, text)
      len = {}
      local sampler <close> = sample.open(trained(), {overrides = fields, threads = 1})
      local set = sampler.pipe.text.set
      sampler.pipe.text.set = function(self, prog, tokens)
        len[#len + 1] = tokens.len:totable()[1]
        return set(self, prog, tokens)
      end
      sampler:render{prompts = {text}, seeds = {4}, steps = 1, batch_size = 1}
      sampler.pipe.text.set = nil
      return len
    end
    local override = require "moonreel.recipe.override"
    assert.same({1, 1, 3}, lengths({override.parse "loop=3", override.parse
      "condition_frame_length=1"}, "|0|a|2|abc"))
    assert.same({#"a aesthetic score: 6.5."}, lengths({override.parse "aes=6.5"}, "a"))
  end)

  it("renders a prompt several times, with consecutive seeds", function()
    local clips = render({"num_sample=2"}, {seeds = {4, 9}})
    local seeds, numbers = {}, {}
    for i, clip in ipairs(clips) do
      seeds[i], numbers[i] = clip.seed, clip.number
    end
    assert.same({4, 5, 9, 10}, seeds)
    assert.same({0, 1, 2, 3}, numbers)
  end)

  it("takes latent frames from references, as the strategies say", function()
    local pixels = frames(render()[1], 0, 1)
    data.png(out .. "/ref.png", pixels, {height = 32, width = 32})
    local last
    local clip = render(nil, {references = {out .. "/ref.png"}, strategies = {"0,0,0,3,1,0"},
      watch = function(_, prog) last = prog:get("z") end})[1]
    local sampler <close> = sample.open(trained(), {threads = 1})
    local z = sampler.codec:encode(T.from({1, 3, 32, 32}, pixels, "u8")):clone()
    assert.same(z:totable(), last:reshape{24, 6, 4, 4}:slice(1, 3, 4):clone():totable())
    local shown
    sampler.codec:decode(z, {frames = 1, height = 32, width = 32}, function(x)
      shown = codec.pixels(x):bytes()
    end)
    assert.is_true(frames(clip, 3, 4) == shown)
    -- the same in the prompt's own JSON
    local own = render(nil, {prompts = {('a red circle{"reference_path": "%s/ref.png", '
      .. '"mask_strategy": "0,0,0,3,1,0"}'):format(out)}})[1]
    assert.is_true(own.pixels == clip.pixels)
    local ok, err = pcall(render, nil, {strategies = {"0,2"}})
    assert.is_false(ok)
    assert.matches("group 1 '0,2': reference 2, but there are no references; try: "
      .. "%-%-reference%-path FILE",
      tostring(err))
  end)

  it("gives a still the mask of all frames next to a conditioned clip", function()
    data.png(out .. "/ref.png", ("\100"):rep(FRAME), {height = 32, width = 32})
    local both = render(nil, {prompts = {"a", "b"}, references = {out .. "/ref.png", ""},
      strategies = {"0,0,0,0,1,0", ""}})
    local alone = render(nil, {prompts = {"b"}})
    assert.is_true(both[2].pixels == alone[1].pixels)
  end)

  describe("at the command line", function()
    local function moonreel(...)
      return demo_data.moonreel("sample", trained(), "--threads", "1", "--steps", "1", "--seed",
        "1", ...)
    end

    local function fails(pattern, ...)
      local r = process.run({"/bin/sh", "-c", '"$@" 2>&1', "sh", process.program(), "sample", ...},
        "", {deadline_s = 600, output_bytes = 1 << 20})
      assert.equal(2, r.exit, r.output)
      assert.matches(pattern, r.output)
    end

    it("accepts fields over those of a checkpoint, and lengths by name", function()
      base.replace_file(out .. "/prompts.txt", "zero\none\ntwo\nthree\n")
      local text = moonreel("--prompt-path", out .. "/prompts.txt", "--start-index", "1",
        "--end-index", "3", "--num-frames", "1x", "--loop", "2", "--condition-frame-length", "1",
        "--sample-name", "clip", "--image-size", "16x8", "--batch-size", "2", "--out",
        out .. "/named")
      assert.equal(out .. "/named/clip_0001.mp4\n" .. out .. "/named/clip_0002.mp4\n", text)
      local facts = data.scan(out .. "/named/clip_0002.mp4")
      assert.same({101, 16, 8}, {facts.frames, facts.height, facts.width})
      text = moonreel("--prompt", "a/b", "--prompt-as-path", "--num-sample", "2", "--frames", "1",
        "--out", out .. "/named")
      assert.equal(out .. "/named/a-b-0.png\n" .. out .. "/named/a-b-1.png\n", text)
      -- a file name holds whole characters; that of an empty prompt has only its number
      local long = "a" .. ("é"):rep(150)
      text = moonreel("--prompt", long, "", "--prompt-as-path", "--frames", "1", "--out",
        out .. "/named")
      assert.equal(("%s/named/%s.png\n%s/named/sample_0001.png\n"):format(out, long:sub(1, 199),
        out), text)
    end)

    it("reads a prompt per line of a file, also with a BOM and Windows line ends", function()
      base.replace_file(out .. "/odd.txt", "\xEF\xBB\xBFone\r\n\r\n \t two  \n  \nthree")
      local listed = json.decode(moonreel("--prompt-path", out .. "/odd.txt", "--frames", "1",
        "--json", "--out", out .. "/odd"))
      local prompts = {}
      for i, file in ipairs(listed.files) do
        prompts[i] = file.prompt
      end
      assert.same({"one", "two", "three"}, prompts)
    end)

    it("has presets, which other arguments override", function()
      local text = moonreel("--preset", "low4s", "--frames", "2", "--prompt", "a",
        "resolutions={'s': {'pixels': 600, 'aspects': [[1.5, 48, 32], [0.56, 16, 32]]}}",
        "--resolution", "s", "--out", out .. "/preset")
      local facts = data.scan((text:gsub("\n", "")))
      assert.same({2, 16, 32}, {facts.frames, facts.height, facts.width})
    end)

    it("accepts lists and sizes as the reference's script does, and makes a sheet", function()
      local text = moonreel("--prompt", "a", "b c", "--image-size", "16", "8",
        "--frames", "2", "--verbose", "2", "--flash-attn", "True", "--layernorm-kernel", "False",
        "--llm-refine", "False", "--watermark", "False", "--sheet", "--out",
        out .. "/lists", "--fps", "8")
      assert.equal(out .. "/lists/sample_0000.mp4\n" .. out .. "/lists/sample_0001.mp4\n" .. out
        .. "/lists/sheet.png\n", text)
      local facts = data.scan(out .. "/lists/sample_0001.mp4")
      assert.same({16, 8, 8.0}, {facts.height, facts.width, facts.fps})
      local sheet = data.scan(out .. "/lists/sheet.png")
      -- a line of tiles for each rendering, with its prompt above in letters of 12 pixels
      assert.equal(2 * (100 + 12) + 4, sheet.height)
      -- the sheet counts as a file of an earlier rendering, too
      fails("/lists/sheet%.png exists already", trained(), "--prompt", "a", "--frames", "1",
        "--sheet", "--out", out .. "/lists")
      local listed = json.decode(moonreel("--prompt", "a", "--frames", "1", "--sheet", "--json",
        "--overwrite", "--out", out .. "/lists"))
      assert.equal(out .. "/lists/sheet.png", listed.sheet)
    end)

    it("prefers a size by name to that of a checkpoint", function()
      local text = moonreel("--prompt", "a", "--frames", "1", "--aspect-ratio", "2:1",
        "resolutions={'s': {'pixels': 600, 'aspects': [[1.0, 24, 24], [2.0, 32, 16]]}}",
        "--resolution", "s", "--out", out .. "/preset")
      local facts = data.scan((text:gsub("\n", "")))
      assert.same({32, 16}, {facts.height, facts.width})
    end)

    it("refuses requests that it cannot render", function()
      fails("%-%-watermark: nothing is drawn over the frames", trained(), "--watermark", "True")
      fails("%-%-prompt%-generator: prompts are refined by a service", trained(),
        "--prompt-generator", "x")
      fails("%-%-image%-size: expected HxW or H W in pixels, got '16'", trained(), "--prompt", "x",
        "--image-size", "16")
      fails("%-%-llm%-refine: prompts are refined by a service", trained(), "--prompt", "x",
        "--llm-refine")
      fails("%-%-preset: expected low4s, high4s or low16s, got 'x'", trained(), "--preset", "x")
      fails("there is no prompt with an index from 3 to below 1; there are 1 prompts, counted "
        .. "from 0", trained(),
        "--prompt", "x", "--start-index", "3", "--end-index", "1")
      base.replace_file(out .. "/taken", "")
      local r = process.run({"/bin/sh", "-c", '"$@" 2>&1', "sh", process.program(), "sample",
        trained(), "--prompt", "x", "--frames", "1", "--out", out .. "/taken"}, "",
        {deadline_s = 600, output_bytes = 1 << 20})
      assert.equal(8, r.exit, r.output)
      assert.matches("taken: cannot create directory: File exists", r.output)
      fails("frames '3s': expected a number from 1 on, or a name: 2s", trained(), "--prompt", "x",
        "--num-frames", "3s")
    end)
  end)

  it("renders released weights by the config.json next to them", function()
    local from <close> = ckpt.open(trained() .. "/ckpt/step-000000000001")
    local folder, rows = out .. "/released", {}
    base.make_dir(folder)
    for _, name in ipairs(from:names()) do
      if require("moonreel.ckpt.names").kind(name) == "weights" then
        local info = from:info(name)
        rows[#rows + 1] = {name = name, dtype = info.dtype, shape = info.shape,
          ptr = from:read(name), bytes = info.bytes}
      end
    end
    ckpt.write(folder .. "/model.safetensors", rows)
    local function open(...)
      local overrides = {}
      for i, text in ipairs{"vae=recipe.replace{type = 'dct'}", "text_encoder=recipe.replace{"
          .. "type = 'bytes', width = 32}", "model.temporal_pos=sincos", ...} do
        overrides[i] = require("moonreel.recipe.override").parse(text)
      end
      return sample.open(folder, {overrides = overrides, threads = 1, ema = false})
    end
    local ok, err = pcall(open)
    assert.is_false(ok)
    assert.matches("released: this file has weights, but no settings, and .*; try: moonreel "
      .. "sample RECIPE %-%-ckpt%-path", tostring(err))
    base.replace_file(folder .. "/config.json", [[{"model_type": "STDiT3", "depth": 1,
      "hidden_size": 32, "num_heads": 2, "patch_size": [1, 1, 1], "in_channels": 24,
      "caption_channels": 32, "model_max_length": 56, "pred_sigma": false, "mlp_ratio": 4.0,
      "drop_path": 0.0, "enable_flash_attn": true}]])
    local sampler <close> = open("sampling.resolution=none")
    local clip = sampler:render{prompts = {"a"}, seeds = {1}, steps = 1, frames = 1, height = 32,
      width = 32}[1]
    assert.equal(FRAME, #clip.pixels)
    assert.equal(30, sampler.defaults.scheduler.num_sampling_steps)
  end)
end)
