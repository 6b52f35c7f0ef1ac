--- Sizes of T5 encoders: config.json and tensors must agree; otherwise the field, the tensor and
-- both values are reported.
-- Covers: lua/moonreel/models/t5/sizes.lua lua/moonreel/models/t5/weights.lua
-- lua/moonreel/embed/source.lua
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local fails = require "spec.support.fails"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local nn = require "moonreel.nn"
local source = require "moonreel.embed.source"
local t5 = require "moonreel.models.t5"
local weights = require "datasets.demo.weights"

describe("sizes of a T5 encoder", function()
  local dir, path
  setup(function() dir, path = folder.around(weights.t5, 1) end)
  teardown(function() dir:remove() end)

  local function with(field, value)
    base.replace_file(path .. "/config.json",
      json.encode(nn.merged(weights.t5_config, { [field] = value })))
  end

  local function open(from)
    local enc = t5.of_file(from, { dtype = "f32" })
    return source.open(from, enc), enc
  end

  it("are read from config.json and from the tensors", function()
    local _ <close>, one = open(path)
    for field, value in pairs(weights.t5_config) do
      if type(value) == "number" then
        assert.equal(value, one.sizes[field], field)
      end
    end
    assert.equal(3 * 9 + 3, #require("moonreel.models.t5.sizes"):tensors(one.sizes))
  end)

  for field, row in pairs {
    d_model = { 64, "d_model is 64, but 'encoder.*' is %[.*%]: its axis %d has %d+" },
    d_ff = { 47, "d_ff is 47, but 'encoder%.block%.0%.layer%.1%.DenseReluDense%.wi_0%.weight' is "
      .. "%[48,32%]: its axis 0 has 48" },
    d_kv = { 16, "num_heads x d_kv is 64, but 'encoder.*k%.weight' is %[32,32%]: its axis 0 has "
      .. "32" },
    num_heads = { 2, "is 2, but 'encoder.*relative_attention_bias%.weight' is %[32,4%]: its axis "
      .. "1 has 4" },
    num_layers = { 4, "num_layers is 4, but '.*' has the tensors of 3" },
    vocab_size = { 319, "vocab_size is 319, but 'shared%.weight' is %[320,32%]: its axis 0 has "
      .. "320" },
    relative_attention_num_buckets = { 16, "relative_attention_num_buckets is 16, but '.*bias" },
    feed_forward_proj = { "relu", "feed_forward_proj is relu; expected gated%-gelu" },
    layer_norm_epsilon = { 0, "layer_norm_epsilon is 0; expected a small number" },
    relative_attention_max_distance = { -1, "relative_attention_max_distance is %-1; expected a "
      .. "size" },
  } do
    it("that config.json contradicts are refused: " .. field, function()
      with(field, row[1])
      local problem = fails("MR_E_CKPT", row[2], open, path)
      assert.matches("/config%.json: ", tostring(problem))
    end)
  end

  it("require all tensors of an encoder", function()
    with("d_model", 32)
    local rows, keep = weights.t5_tensors(weights.t5_config, "f32", 1)
    assert.equal(#rows, #keep)
    local lacking = dir.path .. "/lacking.safetensors"
    for i, row in ipairs(rows) do
      if row.name:find("block.2.layer.1.DenseReluDense.wo", 1, true) then
        table.remove(rows, i)
        break
      end
    end
    ckpt.write(lacking, rows)
    fails("MR_E_CKPT", "no tensor 'encoder%.block%.2%.layer%.1%.DenseReluDense%.wo%.weight'",
      open, lacking)
    ckpt.write(lacking, { { name = "x", dtype = "u8", shape = { 1 }, ptr = "x" } })
    fails("MR_E_CKPT", "no tensor 'shared%.weight'; expected the encoder of a T5 v1%.1",
      open, lacking)
    ckpt.write(lacking, { { name = "encoder.block.999999999.layer.0.x", dtype = "u8", shape = { 1 },
      ptr = "x" } })
    fails("MR_E_CKPT", "a tensor of block 999999999 among 1 tensors", open, lacking)
    base.replace_file(path .. "/config.json", "[1]")
    fails("MR_E_CKPT", "config%.json: expected an object", open, path)
  end)
end)
