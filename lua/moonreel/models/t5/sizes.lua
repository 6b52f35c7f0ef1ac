--- Sizes of a T5 encoder: fields of its config.json and shapes of its tensors.
-- @module moonreel.models.t5.sizes
local sizes = require "moonreel.models.sizes"

local BIAS = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
local QUERY = "encoder.block.0.layer.0.SelfAttention.q.weight"

local t5 = sizes.new {
  what = "a T5 v1.1",
  integers = { "d_model", "d_kv", "d_ff", "num_layers", "num_heads", "vocab_size",
    "relative_attention_num_buckets", "relative_attention_max_distance" },
  needed = { "d_model", "d_kv", "d_ff", "num_layers", "num_heads", "vocab_size" },
  assumed = { relative_attention_num_buckets = 32 },
  silent = { relative_attention_max_distance = 128, layer_norm_epsilon = 1e-6 },
  -- inner: all heads side by side
  spelled = { inner = "num_heads x d_kv" },
  blocks = "num_layers", form = "encoder.block.%d.%s",
  counted = { "encoder%.block%.(%d+)%." }, words = "shared.weight",
  block = {
    ["layer.0.SelfAttention.q.weight"] = { "inner", "d_model" },
    ["layer.0.SelfAttention.k.weight"] = { "inner", "d_model" },
    ["layer.0.SelfAttention.v.weight"] = { "inner", "d_model" },
    ["layer.0.SelfAttention.o.weight"] = { "d_model", "inner" },
    ["layer.0.layer_norm.weight"] = { "d_model" },
    ["layer.1.DenseReluDense.wi_0.weight"] = { "d_ff", "d_model" },
    ["layer.1.DenseReluDense.wi_1.weight"] = { "d_ff", "d_model" },
    ["layer.1.DenseReluDense.wo.weight"] = { "d_model", "d_ff" },
    ["layer.1.layer_norm.weight"] = { "d_model" },
  },
  outside = {
    ["shared.weight"] = { "vocab_size", "d_model" },
    [BIAS] = { "relative_attention_num_buckets", "num_heads" },
    ["encoder.final_layer_norm.weight"] = { "d_model" },
  },
  record = function(config) return config end,
  other = function(config, said, refuse)
    local eps = config.layer_norm_epsilon
    if eps ~= nil and not (type(eps) == "number" and eps > 0) then
      refuse("layer_norm_epsilon", "a small number")
    end
    said.layer_norm_epsilon = eps
    if (config.feed_forward_proj or "gated-gelu") ~= "gated-gelu" then
      refuse("feed_forward_proj", "gated-gelu, as T5 v1.1 has it")
    end
  end,
  complete = function(s) s.inner = s.num_heads * s.d_kv end,
  reported = function(axis)
    local s = { d_model = axis("shared.weight", 2), vocab_size = axis("shared.weight", 1),
      d_ff = axis("encoder.block.0.layer.1.DenseReluDense.wi_0.weight", 1),
      num_heads = axis(BIAS, 2), relative_attention_num_buckets = axis(BIAS, 1) }
    s.d_kv = (axis(QUERY, 1) or 0) // math.max(s.num_heads or 1, 1)
    return s
  end,
}

-- sizes of released models, for use before the files exist. Ref: arXiv:1910.10683, v1.1
local function released(d_model, d_ff, num_layers, num_heads)
  return { d_model = d_model, d_ff = d_ff, num_layers = num_layers, num_heads = num_heads,
    d_kv = 64, vocab_size = 32128, relative_attention_num_buckets = 32 }
end
local known = { small = released(512, 1024, 8, 6), base = released(768, 2048, 12, 12),
  large = released(1024, 2816, 24, 16), xl = released(2048, 5120, 24, 32),
  xxl = released(4096, 10240, 24, 64) }

--- Sizes of a released model by the name of its folder or repository.
---@param path string  "DeepFloyd/t5-v1_1-xxl"
---@return table|nil
function t5.of_name(path)
  local s = known[path:match("t5%-v1_1%-(%l+)/*$")]
  return s and t5:completed(setmetatable({}, { __index = s }))
end

return t5
