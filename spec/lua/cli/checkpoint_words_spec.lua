--- --load, --ckpt-path and --model.from_pretrained with a file, a folder or a pattern, which the
-- shell or the program expands (recipes.md 7).
-- Covers: lua/moonreel/recipe/twins.lua
local ckpt = require "moonreel.ckpt"
local demo_data = dofile "spec/support/demo_data.lua"
local folder = require "spec.support.folder"
local words_of = require "moonreel.settings.words"
local process = require "moonreel.core.process"
local run = require "moonreel.run"
local settings = require "moonreel.settings"

local meta = { recipe_hash = "r", dataset_fingerprint = "d", sampler = "", seed = 1, machine = {} }
local tensors = { { name = "w", dtype = "u8", shape = { 1 }, ptr = "x" } }

describe("a checkpoint on the command line", function()
  local dir, out
  setup(function()
    dir = folder.new()
    out = dir.path .. "/out"
    for _, steps in ipairs { { 9, 10 }, { 3, 200 } } do
      local saver <close> = ckpt.saver(run.create(out, "x"), { keep = 9 })
      for _, step in ipairs(steps) do
        saver:save { step = step, tensors = tensors, meta = meta }
        saver:wait(20)
      end
    end
    for _, name in ipairs { "epoch9-global_step900", "epoch10-global_step1000" } do
      dir:write("ref/008/" .. name .. "/note", "")
      ckpt.write(dir.path .. "/ref/008/" .. name .. "/model.safetensors", tensors)
    end
    ckpt.write(dir.path .. "/weights.safetensors", tensors)
    dir:write("mine.lua", "return recipe {}")
  end)
  teardown(function()
    dir:remove()
    demo_data.remove()
  end)

  -- what a command line opens, with patterns expanded by shell or program; by path below the folder
  local function opened(flag, value, shell)
    local words = {}
    if shell then
      local text = process.run({ "/bin/sh", "-c",
        ("cd '%s' && printf '%%s\n' %s"):format(dir.path, value) }).output
      for word in text:gmatch("[^\n]+") do
        words[#words + 1] = dir.path .. "/" .. word
      end
    else
      words[1] = dir.path .. "/" .. value
    end
    local parsed = words_of.parse({ flag, table.unpack(words) }, require "moonreel.cli.train")
    assert.same({}, parsed.positional)
    local s = settings.bake(dir.path .. "/mine.lua", parsed.overrides, { child = false })
    local c <close> = ckpt.load(ckpt.resolve(flag == "--load" and s.load or s.ckpt_path, out, "x"))
    return c.path:sub(#dir.path + 2)
  end

  local newest = "out/002-x/ckpt/step-000000000200"
  local forms = {
    ["out/001-x"] = "out/001-x/ckpt/step-000000000010",
    ["out/001-x/ckpt"] = "out/001-x/ckpt/step-000000000010",
    ["out/001-x/ckpt/step-000000000009"] = "out/001-x/ckpt/step-000000000009",
    ["out/001-x/ckpt/step-*"] = "out/001-x/ckpt/step-000000000010",
    ["out/*/ckpt/step-*"] = newest,
    ["out/00[1]*/ckpt/*"] = "out/001-x/ckpt/step-000000000010",
    ["out/*"] = newest,
    ["out"] = newest,
    ["out/002-x/epoch*-global_step3"] = "out/002-x/ckpt/step-000000000003",
    ["ref/*/epoch*-global_step*"] = "ref/008/epoch10-global_step1000",
    ["ref/008/epoch9-global_step900"] = "ref/008/epoch9-global_step900",
    ["weights.safetensors"] = "weights.safetensors",
    ["*.safetensors"] = "weights.safetensors",
    ["ref/008/*/model.safetensors"] = "ref/008/epoch10-global_step1000/model.safetensors",
  }
  for _, flag in ipairs { "--load", "--ckpt-path", "--model.from_pretrained" } do
    it(flag .. " takes files, folders and patterns, expanded by the shell or not", function()
      for value, want in pairs(forms) do
        assert.equal(want, opened(flag, value), flag .. " " .. value)
        -- the shell does not know the reference's names of our folders
        if not value:find("epoch*-global_step3", 1, true) then
          assert.equal(want, opened(flag, value, true), flag .. " " .. value)
        end
      end
    end)
  end

  it("ends before the recipe that follows it", function()
    dir:write("out/mine.lua", "return recipe {}")
    for _, recipe in ipairs { dir.path .. "/mine.lua", dir.path .. "/out/mine", "tiny/demo" } do
      local parsed = words_of.parse({ "--load", out .. "/001-x", out .. "/002-x", recipe, "lr=1" },
        require "moonreel.cli.train")
      assert.same({ recipe }, parsed.positional)
    end
  end)

  it("is reported by train, and a damaged one is skipped for the one before", function()
    local function train(words)
      local output, errors, code = folder.moonreel(("train tiny/demo data_path='%s' outputs='%s' "
        .. "name=y threads=1 model.depth=1 ckpt_every=1 "
        .. "log_every=100 %s"):format(demo_data.path(), out, words))
      assert.equal(0, code, errors)
      return output
    end
    train "steps=2"
    local at = out .. "/003-y/ckpt/step-00000000000"
    for flag, want in pairs { ["--load"] = "continues [^\n]*%s at step %%d",
        ["--ckpt-path"] = "%s: %%d+ tensors loaded, 0 missing" } do
      assert.matches(want:format("003%-y/ckpt/step%-000000000002"),
        train(("steps=2 %s '%s*'"):format(flag, at)))
      assert.matches(want:format("003%-y/ckpt/step%-000000000001"),
        train(("steps=2 %s %s1"):format(flag, at)))
    end
    local file = assert(io.open(at .. "2/r00000-of-00001.safetensors", "r+b"))
    file:seek("end", -3)
    file:write("\xAA\xAA")
    file:close()
    local output = train(("steps=2 --ckpt-path '%s*'"):format(at))
    assert.matches("step%-000000000002.-: [^\n]*\n", output)
    assert.matches("003%-y/ckpt/step%-000000000001: %d+ tensors loaded", output)
  end)
end)

describe("a recipe of the references", function()
  it("is answered with the names of our recipes", function()
    for path, want in pairs {
      ["configs/opensora-v1-2/train/stage1.py"] =
        "try: opensora-1.2/lambda/stage1, opensora-1.2/stage1\n",
      ["configs/opensora-v1-2/train/demo_480p.py"] = "try: opensora-1.2/lambda/demo_480p\n",
      ["configs/opensora-v1-2/inference/sample.py"] = "try: opensora-1.2/sample\n",
      ["/somewhere/configs/diffusion/train/stage2_i2v.py"] = "try: opensora-2.0/train/stage2_i2v\n",
      ["configs/diffusion/inference/plugins/t2i2v.py"] =
        "try: opensora-2.0/inference/plugins/t2i2v\n",
      ["configs/vae/train/video_dc_ae.py"] = "try: opensora-2.0/vae/train_dc_ae\n",
      ["stage7.py"] = "try: opensora-1.2/lambda/stage7\n",
      ["nothing.py"] = "try: moonreel help recipes\n",
    } do
      local _, errors, code = folder.moonreel("train " .. path)
      assert.equal(2, code)
      assert.matches(want:gsub("%p", "%%%0") .. "$", errors)
    end
  end)
end)
