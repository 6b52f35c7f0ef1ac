--- The values of a step are written to files and passed to a function. The bits of the run stay the
-- same.
-- Covers: lua/moonreel/trainer/dump.lua lua/moonreel/trainer/program.lua
-- lua/moonreel/trainer/state.lua core/bind/exec.c
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local demo_data = require "spec.support.demo_data"
local dump = require "moonreel.trainer.dump"
local fails = require "spec.support.fails"
local ops = require "moonreel.core.op"
local run = require "moonreel.run"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

local SMALL <const> = { "threads=1", "num_workers=1", "warmup_steps=2", "model.depth=1",
  "model.hidden_size=32", "model.num_heads=2", "text_encoder.width=32",
  "model.caption_channels=32", "steps=3", "accumulate=2", "dtype=fp32",
  "mask_ratios={random: 0.5, image_head: 0.5}" }

describe("a run that dumps steps", function()
  local out, dir

  local function words(...)
    return table.move({ "outputs=" .. out, "data_path=" .. demo_data.path(), ... }, 1, 9,
      #SMALL + 1, table.move(SMALL, 1, #SMALL, 1, {}))
  end

  local function step_lines(path)
    local list = {}
    for entry in run.entries(path) do
      list[#list + 1] = entry.kind == "step" and entry or nil
    end
    return list
  end

  -- the tensors of a dump file by name
  local function read(path)
    local file <close> = ckpt.open(dir .. "/" .. path .. ".safetensors")
    local found = {}
    for _, name in ipairs(file:names()) do
      found[name] = file[name]:tensor():clone()
    end
    return found
  end

  setup(function()
    out = demo_data.scratch()
    dir = out .. "/seen"
    demo_data.moonreel("train", "tiny/demo", "--dump-steps", "1,3", dir, "name=seen",
      table.unpack(words()))
    demo_data.moonreel("train", "tiny/demo", "name=plain", table.unpack(words()))
  end)
  teardown(function()
    os.execute("rm -r '" .. out .. "'")
    demo_data.remove()
  end)

  it("ends with the same bits as a run without dumps", function()
    assert.matches("equal: %d+ tensors, bit for bit", demo_data.moonreel("ckpt", "diff",
      out .. "/001-seen", out .. "/002-plain"))
    assert.same({ "step-1", "step-3" }, base.list_dir(dir))
    assert.same({ "after.safetensors", "before.safetensors", "gradients.safetensors",
      "micro-1.safetensors", "micro-2.safetensors" }, base.list_dir(dir .. "/step-3"))
  end)

  it("writes latents, noise, times and losses of each micro-step", function()
    local line = step_lines(out .. "/001-seen")[3]
    local loss, weight, t = 0, 0, 0
    for micro = 1, 2 do
      local saw = read("step-3/micro-" .. micro)
      local B, size = saw.t.shape[1], saw.latents.shape
      assert.same({ B, 24, size[3], 4, 4 }, size)
      assert.same({ B, size[3] }, saw.mask.shape)
      for _, name in ipairs { "drop", "fps", "text.ids", "pixels", "seed", "size" } do
        assert.is_truthy(saw[name], name)
      end
      local drawn = ops.random_normal(saw.seed, saw.keys, saw.epoch,
        { purpose = base.name_word "noise", dims = table.move(size, 2, 5, 1, {}) })
      assert.equal(drawn:bytes(), saw.noise:bytes())
      for b, w in ipairs(saw.weight:totable()) do
        weight, t = weight + w, t + w * saw.t:totable()[b]
      end
      local sum = ops.sum(saw.per_sample * saw.weight):item()
      assert.near(saw.loss:item(), sum, 1e-5 * sum)
      loss = loss + saw.loss:item()
    end
    assert.near(line.loss, loss / weight, 1e-9)
    -- the file has the times in f32
    assert.near(line.t, t / weight, 1e-6 * line.t)
  end)

  it("writes gradients that have the journal's norm, and the state before and after", function()
    local line, squares, weight = step_lines(out .. "/001-seen")[3], 0, 0
    for name, tensor in pairs(read "step-3/gradients") do
      assert.matches("^grad%.", name)
      squares = squares + ops.sum(tensor * tensor):item()
    end
    for micro = 1, 2 do
      weight = weight + ops.sum(read("step-3/micro-" .. micro).weight):item()
    end
    assert.near(line.grad_norm, squares ^ 0.5 / weight, 1e-5 * line.grad_norm)
    local before, after, moved = read "step-3/before", read "step-3/after", 0
    local kept <close> = demo_data.newest(out, "seen")
    for _, name in ipairs(kept:names()) do
      assert.equal(kept[name]:tensor():bytes(), after[name]:bytes(), name)
      moved = moved + (before[name]:bytes() ~= after[name]:bytes() and 1 or 0)
    end
    assert.is_true(moved > 20)
    assert.equal(0, read("step-1/before")["adam_m.x_embedder.proj.weight"]:max())
  end)

  it("calls a function after each micro-step and each update", function()
    local calls = {}
    local s = settings.bake("tiny/demo", words("steps=2", "name=called"))
    trainer.run(s, { write = function() end, watch = function(step, micro, batch, program)
      calls[#calls + 1] = ("%d.%d%s"):format(step, micro, batch and " " .. #batch.t or "")
      assert.is_true(T.count(program.exec:param("w", "x_embedder.proj.bias").shape) > 0)
    end })
    assert.equal(#calls, 7)
    assert.same({ "0.0", "1.0", "2.0" }, { calls[1], calls[4], calls[7] })
    assert.matches("^1%.1 %d+$", calls[2])
    assert.matches("^1%.2 %d+$", calls[3])
  end)

  it("is refused for steps that do not exist", function()
    for _, list in ipairs { "0", "1,x", "", "1-5", "2.5" } do
      fails("MR_E_USAGE", ("expected steps from 1 on, as 1,50, got '%s'"):format(list):gsub("%p",
        "%%%0"), dump.parse, list)
    end
    local parse = require("moonreel.settings.words").parse
    local train = require "moonreel.cli.train"
    fails("MR_E_USAGE", "%-%-dump%-steps: expected LIST DIR, got nothing", parse,
      { "r", "--dump-steps", "1" }, train)
    assert.same({ "1,3 d", { "r", "k" } }, (function()
      local parsed = parse({ "r", "--dump-steps=1,3", "d", "k" }, train)
      return { parsed.options.dump_steps, parsed.positional }
    end)())
  end)
end)
