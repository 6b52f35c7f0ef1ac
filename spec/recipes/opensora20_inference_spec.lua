--- The inference recipes of Open-Sora 2.0 at tiny sizes, by the command: clips by their names, a
-- first frame by an image model, conditions, tables of prompts.
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local folder = require "spec.support.folder"
local process = require "moonreel.core.process"
local tiny20 = require "spec.support.tiny20"

local PLACE <const> = "opensora-2.0/inference/"

describe("inference recipes of 2.0", function()
  local dir, arguments = folder.new(), {}
  teardown(function() dir:remove() end)

  -- runs the command with a tiny recipe; returns its output and exit code
  local function run(name, ...)
    local place = dir.path .. "/" .. name
    arguments[name] = arguments[name] or select(2, tiny20.make(PLACE .. name, place))
    local words = { process.program(), "sample", PLACE .. name, "--prompt", "a red circle",
      "--steps", "1", "--threads", "1", "--save-dir", place .. "/out", "resolution=64px",
      "img_resolution=96px" }
    for _, list in ipairs { arguments[name], { ... } } do
      table.move(list, 1, #list, #words + 1, words)
    end
    local done = process.run({ "/bin/sh", "-c", '"$@" 2>&1', "sh", table.unpack(words) }, "",
      { deadline_s = 600, output_bytes = 1 << 20 })
    return done.output, done.exit, place .. "/out"
  end

  local function facts(path)
    local f = data.scan(path)
    return { f.frames, f.height, f.width }
  end

  for name, length in pairs { ["256px"] = 5, ["256px_tp"] = 5, ["768px"] = 5 } do
    it(name .. " renders", function()
      local text, exit, out = run(name, "num_frames=" .. length)
      assert.equal(0, exit, text)
      assert.equal(out .. "/video_64px/prompt_0000.mp4\n", text)
      assert.same({ length, 48, 80 }, facts(out .. "/video_64px/prompt_0000.mp4"))
      assert.equal("a red circle. 24 FPS. 4 motion score.",
        base.read_file(out .. "/video_64px/prompt_0000.txt"))
    end)
  end

  for name, shape in pairs { t2i2v_256px = { 5, 48, 80, 64, 144 }, t2i2v_768px = { 5, 48, 80, 64,
      144 }, high_compression = { 8, 32, 128, 32, 64 } } do
    it(name .. " renders from a first frame that an image model makes", function()
      local text, exit, out = run(name, "num_frames=" .. shape[1], "--num-sample", "2")
      assert.equal(0, exit, text)
      local clip = out .. "/video_64px/prompt_0000.mp4"
      assert.same({ shape[1], shape[2], shape[3] }, facts(clip))
      -- each has its own picture, by the image model's own size; under compat half of it in cells
      -- of 32 pixels
      for _, file in ipairs { "prompt_0000", "prompt_0000_1" } do
        local picture = out .. "/video_64px/generated_condition/" .. file
        assert.same({ 1, shape[4], shape[5] }, facts(picture .. ".png"))
        assert.equal("a red circle", base.read_file(picture .. ".txt"))
      end
      assert.are_not.equal(base.read_file(out .. "/video_64px/generated_condition/prompt_0000.png"),
        base.read_file(out .. "/video_64px/generated_condition/prompt_0000_1.png"))
    end)
  end

  it("get a picture as condition, and name their clips by a table", function()
    local still = dir.path .. "/still.png"
    data.png(still, string.char(200, 30, 90):rep(32 * 48), { height = 32, width = 48 })
    local csv = dir:write("rows.csv", ("text,ref,neg,name\n\"a, b\",%s,dark,one\nc,%s,,\n"):format(
      still, still))
    local place = dir.path .. "/256px"
    local text, exit, out = run("256px", "num_frames=5", "cond_type=i2v_head", "--ref", still,
      "--overwrite")
    assert.equal(0, exit, text)
    local words = table.concat(arguments["256px"], "' '")
    text, words, exit = folder.moonreel(("sample "
      .. "%s256px '%s' --steps 1 --threads 1 resolution=64px "
      .. "num_frames=5 cond_type=i2v_head prompt_path=%s --save-dir %s/table"):format(PLACE, words,
      csv, place))
    assert.equal(0, exit, words)
    assert.equal(("%s/table/video_64px/one.mp4\n%s/table/video_64px/rows_0001.mp4\n"):format(place,
      place), text)
    assert.equal("a, b. 24 FPS. 4 motion score.",
      base.read_file(place .. "/table/video_64px/one.txt"))
    assert.is_true(base.exists(out))
  end)

  it("refuse what this program does not support", function()
    assert.equal(2, (select(2, run("256px", "--watermark"))))
  end)
end)
