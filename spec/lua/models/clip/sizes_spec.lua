--- Sizes of CLIP's text encoder, also in files of whole models and of newer classes.
-- Covers: lua/moonreel/models/clip/sizes.lua lua/moonreel/models/clip/weights.lua
-- lua/moonreel/models/sizes.lua
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local clip = require "moonreel.models.clip"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local nn = require "moonreel.nn"
local source = require "moonreel.embed.source"
local weights = require "datasets.demo.weights"

describe("sizes of a CLIP", function()
  local dir, path
  before_each(function() dir, path = folder.around(weights.clip, 1) end)
  after_each(function() dir:remove() end)

  local function with(field, value, under)
    local config = nn.merged(weights.clip_config, { [field] = value })
    base.replace_file(path .. "/config.json", json.encode(under and { [under] = config }
      or config))
  end

  local function open()
    local enc = clip.of_file(path, { dtype = "f32" })
    local file <close> = source.open(path, enc)
    return enc, file
  end

  it("are read from config.json, of the text encoder or of a whole model", function()
    with("num_attention_heads", 8, "text_config")
    assert.equal(8, open().sizes.num_attention_heads)
    os.remove(path .. "/config.json")
    -- no tensor has the number of heads: heads of 64 channels make one here
    assert.equal(1, open().sizes.num_attention_heads)
    local s = { hidden_size = 256 }
    require("moonreel.models.clip.sizes").complete(s)
    assert.equal(4, s.num_attention_heads)
  end)

  for field, row in pairs {
    hidden_size = { 64, "hidden_size is 64, but 'text_model.*' is %[.*%]: its axis %d has %d+" },
    intermediate_size = { 47, "intermediate_size is 47, but '.*fc1.*' is .*: its axis 0 has 48" },
    num_hidden_layers = { 3, "num_hidden_layers is 3, but '.*' has the tensors of 2" },
    vocab_size = { 190, "vocab_size is 190, but '.*token_embedding.*its axis 0 has" },
    max_position_embeddings = { 76, "is 76, but '.*position_embedding.weight' is %[77,32%]" },
    num_attention_heads = { 5, "is 5; expected a divisor of hidden_size, which is 32" },
    hidden_act = { "gelu", "hidden_act is gelu; expected quick_gelu" },
    layer_norm_eps = { "x", "layer_norm_eps is x; expected a small number" },
  } do
    it("that disagree are reported with field, tensor and both values: " .. field, function()
      with(field, row[1])
      fails("MR_E_CKPT", row[2], open)
    end)
  end

  it("are read from files without the prefix text_model, and with a picture encoder", function()
    local rows = {}
    local file <close> = ckpt.open(path .. "/model.safetensors")
    for _, name in ipairs(file:names()) do
      local t = T.new("f32", file:info(name).shape)
      file:read(name, t:ptr())
      local values = t:bytes()
      rows[#rows + 1] = { name = (name:gsub("^text_model%.", "")), dtype = "f32", shape = t.shape,
        ptr = values, bytes = #values }
    end
    rows[#rows + 1] = { name = "vision_model.encoder.layers.5.x", dtype = "f32", shape = { 3 },
      ptr = ("x"):rep(12), bytes = 12 }
    ckpt.write(path .. "/model.safetensors", rows)
    assert.equal(2, open().sizes.num_hidden_layers)
  end)
end)
