--- A small T5 encoder with random weights: a folder as released ones are, with config.json, the
-- tensors under their released names and a tokenizer.
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local json = require "moonreel.core.json"
local sizes = require "moonreel.models.t5.sizes"

local tiny = {}

tiny.config = { model_type = "t5", d_model = 32, d_kv = 8, d_ff = 48, num_layers = 3,
  num_heads = 4, vocab_size = 450, relative_attention_num_buckets = 32,
  relative_attention_max_distance = 128, layer_norm_epsilon = 1e-6,
  feed_forward_proj = "gated-gelu" }

--- Rows for ckpt.write, and what keeps their memory.
---@param config table
---@param dtype string
function tiny.tensors(config, dtype)
  local s = setmetatable({ inner = config.num_heads * config.d_kv }, { __index = config })
  local rows, keep = {}, {}
  for i, row in ipairs(sizes.tensors(s)) do
    local t = T.new("f32", row.shape):fill_normal(i, "tiny_t5")
    local fan = row.shape[2] or 1
    t = row.name:find("norm") and t * 0.1 + 1 or row.name:find("shared") and t
      or t * (fan ^ -0.5)
    t = t:to(dtype)
    keep[i] = t
    local ptr, bytes = t:ptr()
    rows[i] = { name = row.name, dtype = dtype, shape = row.shape, ptr = ptr, bytes = bytes }
  end
  return rows, keep
end

--- Write the folder.
---@param dir string          made if it is not there
---@param change table|nil    fields of config.json and of the tensors
---@param dtype string|nil    f32
---@return string dir
function tiny.write(dir, change, dtype)
  local config = setmetatable(change or {}, { __index = tiny.config })
  local rows, keep = tiny.tensors(config, dtype or "f32")
  base.make_dir(dir)
  ckpt.write(dir .. "/model.safetensors", rows)
  local plain = {}
  for field in pairs(tiny.config) do
    plain[field] = config[field]
  end
  base.replace_file(dir .. "/config.json", json.encode(plain))
  base.replace_file(dir .. "/spiece.model", base.read_file("spec/golden/token/t5.model"))
  return dir, keep
end

return tiny
