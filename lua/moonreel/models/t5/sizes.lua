--- Sizes of a T5 encoder: what config.json says, what the tensors say, and whether both agree.
-- Where config.json lacks a field, or is not there, the tensors decide.
-- @module moonreel.models.t5.sizes
local base = require "moonreel.core.base"
local listing = require "moonreel.text.listing"
local read_config = require "moonreel.text.config"

local sizes = {}

local BIAS = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"

-- what no tensor tells
local silent = { relative_attention_max_distance = 128, layer_norm_epsilon = 1e-6 }

-- the shapes of a block's tensors, and of those outside, by fields; inner: all heads side by side
local block = {
  ["layer.0.SelfAttention.q.weight"] = { "inner", "d_model" },
  ["layer.0.SelfAttention.k.weight"] = { "inner", "d_model" },
  ["layer.0.SelfAttention.v.weight"] = { "inner", "d_model" },
  ["layer.0.SelfAttention.o.weight"] = { "d_model", "inner" },
  ["layer.0.layer_norm.weight"] = { "d_model" },
  ["layer.1.DenseReluDense.wi_0.weight"] = { "d_ff", "d_model" },
  ["layer.1.DenseReluDense.wi_1.weight"] = { "d_ff", "d_model" },
  ["layer.1.DenseReluDense.wo.weight"] = { "d_model", "d_ff" },
  ["layer.1.layer_norm.weight"] = { "d_model" },
}
local outside = {
  ["shared.weight"] = { "vocab_size", "d_model" },
  [BIAS] = { "relative_attention_num_buckets", "num_heads" },
  ["encoder.final_layer_norm.weight"] = { "d_model" },
}

-- released models, for those who ask before the files are there. Ref: arXiv:1910.10683, v1.1
local function released(d_model, d_ff, num_layers, num_heads)
  return { d_model = d_model, d_ff = d_ff, num_layers = num_layers, num_heads = num_heads,
    d_kv = 64, vocab_size = 32128, relative_attention_num_buckets = 32 }
end
local known = { small = released(512, 1024, 8, 6), base = released(768, 2048, 12, 12),
  large = released(1024, 2816, 24, 16), xl = released(2048, 5120, 24, 32),
  xxl = released(4096, 10240, 24, 64) }

local function completed(s)
  for field, value in pairs(silent) do
    s[field] = s[field] or value
  end
  s.inner = s.num_heads * s.d_kv
  return s
end

--- Sizes of a released model by the name of its folder or repository.
---@param path string  "DeepFloyd/t5-v1_1-xxl"
---@return table|nil
function sizes.of_name(path)
  local s = known[path:match("t5%-v1_1%-(%l+)/*$")]
  return s and completed(setmetatable({}, { __index = s }))
end

-- what a form says of each name in a list of shapes, in order of the names
local function add_all(rows, s, shapes, form)
  local names = {}
  for name in pairs(shapes) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local shape, fields = {}, shapes[name]
    for axis, field in ipairs(fields) do
      shape[axis] = s[field]
    end
    rows[#rows + 1] = { name = form:format(name), shape = shape, fields = fields }
  end
end

--- Names of all tensors and their shapes: those outside of blocks, then block by block.
---@return table[]  {name, shape, fields}
function sizes.tensors(s)
  local rows = {}
  add_all(rows, s, outside, "%s")
  for i = 0, s.num_layers - 1 do
    add_all(rows, s, block, "encoder.block." .. i .. ".%s")
  end
  return rows
end

--- All elements of the encoder but its words, which are read row by row.
---@return integer
function sizes.elements(s)
  local n = 0
  for _, row in ipairs(sizes.tensors(s)) do
    local count = row.name == "shared.weight" and 0 or 1
    for _, length in ipairs(row.shape) do
      count = count * length
    end
    n = n + count
  end
  return n
end

--- What config.json says, with the kinds of fields checked.
---@param path string
---@return table  fields; none where there is no such file
function sizes.of_config(path)
  if not base.exists(path) then
    return {}
  end
  local config, said = read_config(path), {}
  local function refuse(field, expected)
    base.raise("MR_E_CKPT", ("%s: %s is %s; expected %s"):format(path, field,
      tostring(config[field]), expected))
  end
  for _, field in ipairs { "d_model", "d_kv", "d_ff", "num_layers", "num_heads", "vocab_size",
      "relative_attention_num_buckets", "relative_attention_max_distance" } do
    local n = math.tointeger(config[field])
    if config[field] ~= nil and not (n and n >= 1 and n <= 1 << 24) then
      refuse(field, "a size")
    end
    said[field] = n
  end
  if config.layer_norm_epsilon ~= nil and not (type(config.layer_norm_epsilon) == "number"
      and config.layer_norm_epsilon > 0) then
    refuse("layer_norm_epsilon", "a small number")
  end
  said.layer_norm_epsilon = config.layer_norm_epsilon
  if (config.feed_forward_proj or "gated-gelu") ~= "gated-gelu" then
    refuse("feed_forward_proj", "gated-gelu, as T5 v1.1 has it")
  end
  return said
end

--- Sizes of the encoder in a folder by its config.json alone.
---@param path string
---@return table|nil  nil: there is no such file
function sizes.of_folder(path)
  local file = path .. "/config.json"
  if not base.exists(file) then
    return nil
  end
  local said = sizes.of_config(file)
  said.relative_attention_num_buckets = said.relative_attention_num_buckets or 32
  for _, field in ipairs { "d_model", "d_kv", "d_ff", "num_layers", "num_heads", "vocab_size" } do
    if not said[field] then
      base.raise("MR_E_CKPT", ("%s: no %s in it; expected that of a T5 v1.1"):format(file, field))
    end
  end
  return completed(said)
end

--- Sizes of the encoder in a file or folder; raises where config.json and tensors contradict each
-- other, naming field, tensor and both values, and where a tensor is missing.
---@param path string   what was opened; config.json lies in it
---@param shape_of fun(name: string): integer[]|nil  of a tensor by its released name
---@param blocks integer  in the file
---@return table
function sizes.read(path, shape_of, blocks)
  local file = path .. "/config.json"
  local said = sizes.of_config(file)
  local function axis(name, at)
    local shape = shape_of(name)
    if not shape then
      base.raise("MR_E_CKPT", ("%s: no tensor '%s'; expected the encoder of a T5 v1.1"):format(path,
        name))
    end
    return shape[at]
  end
  local q = "encoder.block.0.layer.0.SelfAttention.q.weight"
  local s = { d_model = axis("shared.weight", 2), vocab_size = axis("shared.weight", 1),
    d_ff = axis("encoder.block.0.layer.1.DenseReluDense.wi_0.weight", 1), num_layers = blocks,
    num_heads = axis(BIAS, 2), relative_attention_num_buckets = axis(BIAS, 1) }
  s.d_kv = (axis(q, 1) or 0) // math.max(s.num_heads or 1, 1)
  for field, value in pairs(said) do
    s[field] = value
  end
  completed(s)
  if s.num_layers ~= blocks then
    base.raise("MR_E_CKPT", ("%s: num_layers is %d, but '%s' has the tensors of %d"):format(file,
      s.num_layers, path, blocks))
  end
  for _, row in ipairs(sizes.tensors(s)) do
    axis(row.name, 1)
    local shape = shape_of(row.name)
    for at, want in ipairs(row.shape) do
      if shape[at] ~= want or #shape ~= #row.shape then
        local field = row.fields[at] == "inner" and "num_heads x d_kv" or row.fields[at]
        base.raise("MR_E_CKPT", ("%s: %s is %d, but '%s' is %s: its axis %d has %s"):format(
          next(said) and file or path, field, want, row.name, listing.shape(shape), at - 1,
          tostring(shape[at])))
      end
    end
  end
  return s
end

return sizes
