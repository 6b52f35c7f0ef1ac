--- The scripts of examples/ do what their comments say.
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local data = require "moonreel.data"
local json = require "moonreel.core.json"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local T = require "moonreel.core.tensor"
local weights = require "datasets.demo.weights"

local function run(...)
  local result = process.run({ process.program(), ... }, "", { deadline_s = 600 })
  return result.output, result.exit
end

describe("examples", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  it("are those that the README names", function()
    local text, n = base.read_file "examples/README.md", 0
    for _, name in ipairs(base.list_dir "examples") do
      if name:match("%.lua$") then
        assert.is_truthy(text:find(name, 1, true), name)
        n = n + 1
      end
    end
    assert.equal(6, n)
  end)

  it("train a model by hand: the loss falls to a hundredth", function()
    local output, exit = run "examples/train_by_hand.lua"
    assert.equal(0, exit, output)
    local first = tonumber(output:match("step +1  loss (%S+)"))
    local last = tonumber(output:match("step +400  loss (%S+)"))
    assert.is_true(last * 100 < first, output)
    local want, got = output:match("x = %S+ (%S+), the model says (%S+)")
    assert.near(tonumber(want), tonumber(got), 0.1)
    for _, word in ipairs { "many", "0", "1.5" } do
      local _, err, code = folder.moonreel("examples/train_by_hand.lua " .. word)
      assert.equal(2, code)
      assert.equal("steps '" .. word .. "': expected a whole number from 1 on; try: 400\n", err)
    end
  end)

  it("iterate over a loader: each sample once, with the pixels that were written", function()
    for i = 1, 5 do
      dir:write(("clips/%d.txt"):format(i), "clip number " .. i)
      data.encode(("%s/clips/%d.mp4"):format(dir.path, i), ("\x60"):rep(4 * 3 * 32 * 32),
        { frames = 4, height = 32, width = 32 })
    end
    data.encode(dir.path .. "/clips/short.mp4", ("\x60"):rep(3 * 32 * 32),
      { frames = 1, height = 32, width = 32 })
    data.ingest(dir.path .. "/clips", dir.path .. "/clips.mrx")
    local output, exit = run("examples/loop_over_loader.lua", dir.path .. "/clips.mrx")
    assert.equal(0, exit, output)
    assert.matches("left out: 1 samples, pictures", output)
    assert.matches("batch 0: %[2, 2, 3, 32, 32%], mean 9[5-7]", output)
    assert.matches("\n5 samples\n$", output)
    for i = 1, 5 do
      assert.matches("clip number " .. i, output)
    end
    assert.equal(2, select(2, run "examples/loop_over_loader.lua"))
    local _, err, code = folder.moonreel("examples/loop_over_loader.lua clips.mrx many")
    assert.equal(2, code)
    assert.matches("%[frames%] %[batch size%]; got: clips%.mrx many\n$", err)
  end)

  it("encode and decode a clip: sizes of whole cells, and the PSNR of the file",
    function()
      weights.vae(dir.path .. "/vae", 5)
      local clip, out, rows = dir.path .. "/noise.mp4", dir.path .. "/back.mp4", {}
      for i = 1, 7 * 3 * 40 * 52 do
        rows[i] = string.char(base.mix(3, tostring(i)) % 256)
      end
      data.encode(clip, table.concat(rows), { frames = 7, height = 40, width = 52 })
      local function psnr(...)
        local output, exit = run("examples/reconstruct_clip.lua", dir.path .. "/vae", clip,
          out, ...)
        assert.equal(0, exit, output)
        return output, tonumber(output:match "back%.mp4: PSNR (%S+) dB\n$")
      end
      local output, said = psnr("6", "32")
      assert.matches("^6 of 7 frames, 32 x 48; needs ", output)
      assert.matches("\nlatents %[4, 2, 4, 6%]: mean ", output)
      local was = T.from({ 6, 3, 32, 48 },
        (data.decode(clip, { frames = 6, height = 32, width = 48 })), "u8")
      local coder <close> = codec.open(dir.path .. "/vae")
      local back = coder:decode(coder:encode(was), { frames = 6, height = 32, width = 48 })
      local off = back:to "f32" - was:to "f32"
      local square = off * off
      assert.near(10 * math.log(255 ^ 2 / square:mean(), 10), said, 0.006)
      -- the file shows that picture, as far as a video file keeps noise
      off = T.from({ 6, 3, 32, 48 }, (data.decode(out)), "u8"):to "f32" - back:to "f32"
      assert.is_true(off:norm() < 0.2 * back:to("f32"):norm(), off:norm())
      assert.matches("^1 of 7 frames, 40 x 48; ", (psnr()))
      local _, err, code = folder.moonreel("examples/reconstruct_clip.lua vae clip.mp4 o.mp4 x")
      assert.equal(2, code)
      assert.matches("%[dtype%]; got: vae clip%.mp4 o%.mp4 x\n$", err)
    end)

  it("run as ranks: one gradient, the rows of all", function()
    local output, exit = run("-n", "3", "examples/ranks.lua")
    assert.equal(0, exit, output)
    local gradient = output:match("^rank 0 of 3: gradient (%S+), 12 rows, ")
    local same = "gradient " .. gradient:gsub("%p", "%%%0") .. ", 12 rows, 6 pieces, with rank "
    assert.matches("\nrank 1 of 3: " .. same .. "1\nrank 2 of 3: " .. same .. "0 2\n$", output)
    assert.equal(0, select(2, run "examples/ranks.lua"))
  end)

  it("run copies and a collective in parallel with compute, also in the trace", function()
    local path = dir.path .. "/queues.json"
    local output, exit = run("examples/queues.lua", path)
    assert.equal(0, exit, output)
    local schedule = {}
    for queue in output:gmatch "\n +%d+ (%S+) +copy '[^\n]*overlaps compute %d+ to %d+" do
      schedule[#schedule + 1] = queue
    end
    assert.are.same({ "comm_intra", "d2h", "h2d" }, schedule)
    -- process 2: the collective begins with compute, the copies at the end of the op before them
    local events, h2d = {}, nil
    for _, e in ipairs(json.decode(base.read_file(path)).traceEvents) do
      if e.ph == "X" and e.pid == 2 then
        events[#events + 1], h2d = e, e.tid == 3 and e or h2d
      end
    end
    local gather, linear, silu, d2h = events[1], events[2], events[3], events[4]
    assert.are.same({ 0, 0 }, { gather.ts, linear.ts })
    assert.is_true(gather.dur > 0 and linear.dur > 0)
    assert.are.same({ 1, 0, 0, 4 }, { gather.tid, linear.tid, silu.tid, d2h.tid })
    assert.near(silu.ts + silu.dur, d2h.ts, 0.01)
    assert.near(d2h.ts + d2h.dur, h2d.ts, 0.01)
  end)

  it("print statistics of a checkpoint", function()
    local path = dir.path .. "/w.safetensors"
    local function write(bad)
      local rows = {}
      for name, values in pairs { ["blocks.0.w"] = { 3, 4 }, ["blocks.10.w"] = { 0, -7 },
          head = { 1, bad } } do
        rows[#rows + 1] = { name = name, dtype = "f32", shape = { 2 },
          ptr = T.from({ 2 }, values):bytes() }
      end
      require("moonreel.ckpt").write(path, rows)
    end
    write(2)
    local output, exit = run("examples/checkpoint_statistics.lua", path)
    assert.equal(0, exit, output)
    assert.matches("blocks%.0 +1 +2 +5 +4\nblocks%.10 +1 +2 +7 +7\nhead", output)
    assert.matches("3 layers, 0 values are not finite", output)
    write(0 / 0)
    output, exit = run("examples/checkpoint_statistics.lua", path, "head")
    assert.equal(1, exit)
    assert.matches("1 layers, 1 values are not finite", output)
  end)
end)
