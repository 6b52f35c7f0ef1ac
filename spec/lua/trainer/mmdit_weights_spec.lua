--- Initial weights of a run of MMDiT. Weights of another size are refused with both values and the
-- lines that set them. Weights of another form are converted with one message.
-- Covers: lua/moonreel/trainer/setup.lua lua/moonreel/settings/blame.lua
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local nn = require "moonreel.nn"
local sample = require "moonreel.sample"
local settings = require "moonreel.settings"
local small_mmdit_run = require "spec.support.small_mmdit_run"
local trainer = require "moonreel.trainer"
local weights = require "datasets.demo.weights"

describe("the initial weights of a run of MMDiT", function()
  local dir, words, fields
  setup(function()
    dir, words = small_mmdit_run.new()
    fields = settings.bake(dir.path .. "/mmdit.lua", words):plain "model"
  end)
  teardown(function() dir:remove() end)

  local function bake(...)
    local list = table.move(words, 1, #words, 1, {})
    list[#list + 1] = "steps=1"
    return settings.bake(dir.path .. "/from.lua", table.move({ ... }, 1, select("#", ...),
      #list + 1, list))
  end

  -- a file of a model with other fields, and a recipe that starts from it
  local function from(change)
    weights.mmdit(dir.path .. "/w.safetensors", nn.merged(fields, change), 1)
    dir:write("from.lua", ('return recipe.extend("./mmdit") {\n  model = { depth = 1 },\n'
      .. '  ckpt_path = "%s/w.safetensors",\n}\n'):format(dir.path))
  end

  local function train(...)
    local lines = {}
    local code = trainer.run(bake(...), { write = function(line) lines[#lines + 1] = line end })
    return code, table.concat(lines, "\n")
  end

  it("are refused at another depth or width, with both values and their lines", function()
    from { depth = 2 }
    fails("MR_E_CKPT", "from%.lua:3: .-w%.safetensors: model%.depth is 1, but "
      .. "counting blocks like that of 'double_blocks%.1%.[%w_.]+' gives 2; try: model%.depth = 2\n"
      .. "  model%.depth = 1 set by .-/from%.lua:2$", train)
    from { hidden_size = 64, axes_dim = { 8, 12, 12 } }
    fails("MR_E_CKPT", "model%.hidden_size is 32, but 'img_in%.weight' is %[64,4%]: its axis 0 has "
      .. "64; try: model%.hidden_size = 64\n  model%.hidden_size = 32 set by .-/mmdit%.lua:7$",
      train)
  end)

  it("are refused by a rendering as well, with the argument that set the size", function()
    from {}
    local s = bake "model.depth_single_blocks=3"
    fails("MR_E_CKPT", "model%.depth_single_blocks is 3, but counting blocks like that "
      .. "of 'single_blocks%.1%.[%w_.]+' gives 2; try: model%.depth_single_blocks = 2\n"
      .. "  model%.depth_single_blocks = 3 set by model%.depth_single_blocks=3$",
      sample.open, s.ckpt_path, { settings = s })
  end)

  it("are converted from other layers and another rotation, with one message", function()
    from { fused_qkv = false, use_liger_rope = true }
    local code, text = train()
    assert.equal(0, code)
    assert.matches("converted +single_blocks%.%*%.linear1%.weight +2 +rotation of halves as of "
      .. "pairs, several products as one\n", text)
    local _, count = text:gsub("converted +double_blocks%.0%.img_attn%.qkv%.weight", "")
    assert.equal(1, count)
    assert.matches("0 missing, 0 unexpected, names of MMDiT", text)
    -- where the recipe says that the file rotates neighbours, only the layers are converted
    _, text = train "model.rope_of_weights=pairs"
    assert.is_nil(text:find("rotation of", 1, true))
    assert.matches("converted +double_blocks%.0%.txt_attn%.qkv%.bias +1 +several products as one",
      text)
  end)

  it("are not converted when they come from a run, whatever its layers and rotation", function()
    for _, fused in ipairs { "true", "false" } do
      for _, halves in ipairs { "true", "false" } do
        dir:write("from.lua", 'return recipe.extend "./mmdit" {}\n')
        local how = { "model.fused_qkv=" .. fused, "model.use_liger_rope=" .. halves }
        local name = "own-" .. fused .. "-" .. halves
        local code, text = train("name=" .. name, table.unpack(how))
        assert.equal(0, code, text)
        local run = text:match "run (%S-):"
        local file = ("%s/%s.safetensors"):format(dir.path, name)
        local _, err, exit = folder.moonreel(("ckpt convert '%s' '%s'"):format(run, file))
        assert.equal(0, exit, err)
        for _, path in ipairs { run, file } do
          code, text = train("ckpt_path=" .. path, table.unpack(how))
          assert.equal(0, code, text)
          assert.is_nil(text:find("rotation of", 1, true), text)
          assert.matches("0 missing, 0 unexpected", text)
        end
        -- the rotation is converted when the new run has the other one
        local other = halves == "true" and "false" or "true"
        code, text = train("ckpt_path=" .. file, how[1], "model.use_liger_rope=" .. other)
        assert.equal(0, code, text)
        assert.matches(halves == "true" and "rotation of halves as of pairs"
          or "rotation of pairs as of halves", text)
      end
    end
  end)
end)
