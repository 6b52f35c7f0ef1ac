--- The type text_embedder: which encoder it is, and how that encodes captions.
-- Covers: lua/moonreel/models/text_embedder/init.lua
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local text_embedder = require "moonreel.models.text_embedder"
local weights = require "datasets.demo.weights"

describe("the text encoder text_embedder", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  local function new(path, length)
    return text_embedder.new(nil, { from_pretrained = path, max_length = length or 512 },
      { dtype = "f32" })
  end

  it("is the encoder of config.json, whatever the name of the folder", function()
    weights.t5(dir.path .. "/openai", 1)
    weights.clip(dir.path .. "/words", 1)
    local t5 = new(dir.path .. "/openai", 40)
    assert.same({ "attend", 40, false }, { t5.padding, t5.max_length, t5.cleans })
    local clip = new(dir.path .. "/words")
    assert.same({ true, 77 }, { clip.vector, clip.max_tokens })
    assert.equal(20, new(dir.path .. "/words", 20).max_tokens)
  end)

  it("refuses a T5 as second encoder, because both folders have fixed roles", function()
    weights.t5(dir.path .. "/no_clip", 1)
    local s = require("moonreel.settings").bake("opensora-2.0/train/stage1",
      { "clip.from_pretrained=" .. dir.path .. "/no_clip" })
    fails("MR_E_RECIPE", "clip.from_pretrained=.*is not a CLIP: it gives no vector of a caption; "
      .. "try: the folder of a CLIP", require("moonreel.settings.blame").record, s, "model",
      require("moonreel.models.pipeline").of, s, "f32")
  end)

  it("is the encoder of the folder's name when it has no file", function()
    assert.equal(768, new("openai/clip-vit-large-patch14").width)
    assert.equal(4096, new("google/t5-v1_1-xxl").width)
    fails("MR_E_RECIPE", "type = text_embedder needs from_pretrained", new)
  end)
end)
