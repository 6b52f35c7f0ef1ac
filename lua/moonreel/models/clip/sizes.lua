--- Sizes of the text half of a CLIP: fields of its config.json and shapes of its tensors.
-- @module moonreel.models.clip.sizes
local sizes = require "moonreel.models.sizes"

local WORDS = "text_model.embeddings.token_embedding.weight"
local PLACES = "text_model.embeddings.position_embedding.weight"

-- shapes of a block's tensors: matrices and their biases
local block = {}
for name, shape in pairs {
  ["self_attn.q_proj"] = { "hidden_size", "hidden_size" },
  ["self_attn.k_proj"] = { "hidden_size", "hidden_size" },
  ["self_attn.v_proj"] = { "hidden_size", "hidden_size" },
  ["self_attn.out_proj"] = { "hidden_size", "hidden_size" },
  ["mlp.fc1"] = { "intermediate_size", "hidden_size" },
  ["mlp.fc2"] = { "hidden_size", "intermediate_size" },
  ["layer_norm1"] = { "hidden_size" },
  ["layer_norm2"] = { "hidden_size" },
} do
  block[name .. ".weight"], block[name .. ".bias"] = shape, { shape[1] }
end

local clip = sizes.new {
  what = "a CLIP",
  integers = { "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "vocab_size", "max_position_embeddings" },
  needed = { "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "vocab_size" },
  assumed = { max_position_embeddings = 77 },
  silent = { layer_norm_eps = 1e-5 },
  spelled = {},
  blocks = "num_hidden_layers", form = "text_model.encoder.layers.%d.%s",
  counted = { "text_model%.encoder%.layers%.(%d+)%.", "^encoder%.layers%.(%d+)%." }, words = WORDS,
  block = block,
  outside = {
    [WORDS] = { "vocab_size", "hidden_size" },
    [PLACES] = { "max_position_embeddings", "hidden_size" },
    ["text_model.final_layer_norm.weight"] = { "hidden_size" },
    ["text_model.final_layer_norm.bias"] = { "hidden_size" },
  },
  -- the config of the whole model has the text half in a table of its own
  record = function(config)
    return type(config.text_config) == "table" and config.text_config or config
  end,
  other = function(config, said, refuse)
    local eps = config.layer_norm_eps
    if eps ~= nil and not (type(eps) == "number" and eps > 0) then
      refuse("layer_norm_eps", "a small number")
    end
    said.layer_norm_eps = eps
    if (config.hidden_act or "quick_gelu") ~= "quick_gelu" then
      refuse("hidden_act", "quick_gelu, as OpenAI's CLIP has it")
    end
    local width, heads = said.hidden_size, said.num_attention_heads
    if width and heads and width % heads ~= 0 then
      refuse("num_attention_heads", ("a divisor of hidden_size, which is %d"):format(width))
    end
  end,
  -- no tensor shows the number of heads; CLIPs of OpenAI have 64 channels per head
  complete = function(s)
    s.num_attention_heads = s.num_attention_heads or math.max(s.hidden_size // 64, 1)
  end,
  reported = function(axis)
    return { hidden_size = axis(WORDS, 2), vocab_size = axis(WORDS, 1),
      max_position_embeddings = axis(PLACES, 1),
      intermediate_size = axis("text_model.encoder.layers.0.mlp.fc1.weight", 1) }
  end,
}

-- sizes of released models, for use before the files exist. Ref: arXiv:2103.00020
local known = {
  ["clip-vit-large-patch14"] = { hidden_size = 768, intermediate_size = 3072,
    num_hidden_layers = 12, num_attention_heads = 12 },
  ["clip-vit-base-patch32"] = { hidden_size = 512, intermediate_size = 2048,
    num_hidden_layers = 12, num_attention_heads = 8 },
}
known["clip-vit-base-patch16"] = known["clip-vit-base-patch32"]
known["clip-vit-large-patch14-336"] = known["clip-vit-large-patch14"]

--- Sizes of a released model by the name of its folder or repository.
---@param path string  "openai/clip-vit-large-patch14"
---@return table|nil
function clip.of_name(path)
  local s = known[path:match "([^/]*)/*$"]
  return s and clip:completed(setmetatable({ vocab_size = 49408, max_position_embeddings = 77 },
    { __index = s }))
end

return clip
