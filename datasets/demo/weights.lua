--- Random weights of a tiny Open-Sora video autoencoder and of tiny T5 and CLIP encoders in the
-- layouts of the released ones: folders with config.json and model.safetensors, and tokenizers;
-- files of the other autoencoders and of MMDiT at the sizes of a recipe. Nothing was learned; for
-- trying what takes such folders and files.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local clip_sizes = require "moonreel.models.clip.sizes"
local families = require "moonreel.recipe.families"
local json = require "moonreel.core.json"
local large = require "moonreel.bench.large"
local mmdit = require "moonreel.models.mmdit"
local nn = require "moonreel.nn"
local kl = require "moonreel.models.autoencoder_2d.kl"
local opensora_vae = require "moonreel.models.opensora_vae"
local settings = require "moonreel.settings"
local stdit3 = require "moonreel.models.stdit3"
local t5_sizes = require "moonreel.models.t5.sizes"
local temporal = require "moonreel.models.opensora_vae.temporal"
local world = require "datasets.demo.world"

local weights = {}

weights.config = {
  model_type = "VideoAutoencoderPipeline", micro_frame_size = 17,
  shift = {-0.10, 0.34, 0.27, 0.98}, scale = {3.85, 2.32, 2.33, 3.06},
  vae_2d = {type = "VideoAutoencoderKL", block_out_channels = {8, 8, 16, 16},
    layers_per_block = 1, norm_num_groups = 4},
  vae_temporal = {type = "VAE_Temporal_SD", filters = 8, num_res_blocks = 1, num_groups = 4},
}

--- Write the folder.
---@param folder string
---@param seed integer
---@param change fun(name: string, tensor: mr.Tensor): string?, mr.Tensor?  nil: the tensor is left
---   out; for files of other layouts
function weights.vae(folder, seed, change)
  local auto, params = opensora_vae.new(nil, {}), G.params("f32")
  base.make_dir(folder)
  base.replace_file(folder .. "/config.json", json.encode(weights.config))
  auto:read(folder)
  auto:declare(nn.scope(params), auto.said)
  params:seal()
  local device <close> = E.device("cpu")
  local run <close>, rows = E.new(device, params, {}), {}
  run:init(seed)
  for _, p in ipairs(params:list()) do
    local t = run:param(p.frozen and "frozen" or "w", p.name)
    local name = p.name
    if change then
      name, t = change(name, t)
    end
    if name then
      local values = t:bytes()
      rows[#rows + 1] = {name = name, dtype = t.dtype, shape = t.shape, ptr = values,
        bytes = #values}
    end
  end
  ckpt.write(folder .. "/model.safetensors", rows)
end

-- ---- networks that a recipe's fields tell the sizes of

-- write what is declared, with random values that keep numbers about as large as they are
local function write_declared(path, declare, seed)
  local params, rows = G.params("f32"), {}
  declare(params)
  for i, p in ipairs(params:seal():list()) do
    local t = T.new("f32", p.shape):fill_normal(seed, "weights", i)
    local norm = #p.shape == 1 and (p.name:find("norm") or p.name:find("scale$"))
    local values = (norm and p.name:find("weight$") and t * 0.1 + 1
      or t * (#p.shape > 1 and (T.count(p.shape) / p.shape[1]) ^ -0.5 or 0.1)):bytes()
    rows[i] = {name = p.name, dtype = "f32", shape = p.shape, ptr = values, bytes = #values}
  end
  base.make_dir(path:match("^(.*)/") or ".")
  ckpt.write(path, rows)
end

--- Write the file of an autoencoder that lies apart.
---@param path string
---@param fields table  of its record, vae of a recipe
---@param seed integer
function weights.autoencoder(path, fields, seed)
  local auto = families.of("vae", fields.type):open("init").new(nil, fields, {dtype = "f32"})
  write_declared(path, function(params)
    for _, part in ipairs(auto:parts()) do
      part.declare(params)
    end
  end, seed)
end

--- Write the file of an MMDiT.
---@param path string
---@param fields table  of its record, model of a recipe
---@param seed integer
function weights.mmdit(path, fields, seed)
  write_declared(path, function(params) mmdit.new(params, fields) end, seed)
end

-- ---- T5

weights.t5_config = {
  model_type = "t5", d_model = 32, d_kv = 8, d_ff = 48, num_layers = 3, num_heads = 4,
  vocab_size = 320, relative_attention_num_buckets = 32, relative_attention_max_distance = 128,
  layer_norm_epsilon = 1e-6, feed_forward_proj = "gated-gelu",
}

-- an integer of a protobuf message, low bits first
local function varint(n)
  local bytes = ""
  while n > 127 do
    bytes, n = bytes .. string.char(n & 127 | 128), n >> 7
  end
  return bytes .. string.char(n)
end

-- a field that is a text or a message: its number, wire type 2, length
local function text_field(number, text)
  return string.char(number << 3 | 2) .. varint(#text) .. text
end

local NORMAL, UNKNOWN, CONTROL = 1, 2, 3

-- a SentencePiece model of the demo's words and of single letters. Ref: sentencepiece_model.proto
local function tokenizer()
  local parts, space = {}, "\u{2581}"
  local function piece(text, score, kind)
    parts[#parts + 1] = text_field(1, text_field(1, text) .. string.pack("<Bf", 2 << 3 | 5, score)
      .. string.char(3 << 3, kind))
  end
  piece("<pad>", 0, CONTROL)
  piece("</s>", 0, CONTROL)
  piece("<unk>", 0, UNKNOWN)
  piece(space, -4, NORMAL)
  for letter = 33, 126 do
    piece(string.char(letter), -8, NORMAL)
  end
  local others = { "a", "the", "on", "background", "moving", "moves", "drifts", "travels", "going",
    "slides", "still" }
  for _, list in ipairs { world.colours, world.shapes, world.directions, world.backgrounds,
      others } do
    for _, row in ipairs(list) do
      piece(space .. (type(row) == "table" and row[1] or row), -2, NORMAL)
    end
  end
  -- a unigram model
  parts[#parts + 1] = text_field(2, string.char(3 << 3, 1))
  return table.concat(parts)
end

--- Rows of a T5 encoder for ckpt.write, by their released names, and what keeps their memory.
---@param config table  as weights.t5_config
---@param dtype string
---@param seed integer
---@return table[] rows, mr.Tensor[] keep
function weights.t5_tensors(config, dtype, seed)
  local s = setmetatable({inner = config.num_heads * config.d_kv}, {__index = config})
  local rows, keep = {}, {}
  for i, row in ipairs(t5_sizes:tensors(s)) do
    local t = T.new("f32", row.shape):fill_normal(seed, "t5", i)
    if row.name:find("norm") then
      t = t * 0.1 + 1
    elseif row.name ~= "shared.weight" then
      t = t * row.shape[2] ^ -0.5
    end
    keep[i] = t:to(dtype)
    local ptr, bytes = keep[i]:ptr()
    rows[i] = {name = row.name, dtype = dtype, shape = row.shape, ptr = ptr, bytes = bytes}
  end
  return rows, keep
end

--- Write the folder of a T5 encoder.
---@param folder string
---@param seed integer
---@param change table|nil  fields of weights.t5_config
function weights.t5(folder, seed, change)
  local config = nn.merged(weights.t5_config, change)
  base.make_dir(folder)
  base.replace_file(folder .. "/config.json", json.encode(config))
  base.replace_file(folder .. "/spiece.model", tokenizer())
  local rows, keep = weights.t5_tensors(config, "f32", seed)
  ckpt.write(folder .. "/model.safetensors", rows)
  keep[1] = nil  -- alive until here
end

-- ---- CLIP

weights.clip_config = {
  model_type = "clip_text_model", hidden_size = 32, intermediate_size = 48, num_hidden_layers = 2,
  num_attention_heads = 4, max_position_embeddings = 77, layer_norm_eps = 1e-5,
  hidden_act = "quick_gelu",
}

-- write byte pairs and count them: every character of ASCII, alone and at the end of a word, and a
-- few pairs; other bytes have no part
local function byte_pairs(folder)
  local ids, merges, n = {}, { "#version: 0.2" }, 0
  local function add(part)
    ids[part], n = n, n + 1
  end
  for letter = 33, 126 do
    add(string.char(letter))
    add(string.char(letter) .. "</w>")
  end
  for _, pair in ipairs { { "r", "e" }, { "re", "d</w>" }, { "t", "h" }, { "th", "e</w>" },
      { "o", "n</w>" }, { "i", "n" }, { "in", "g</w>" } } do
    merges[#merges + 1] = pair[1] .. " " .. pair[2]
    add(pair[1] .. pair[2])
  end
  add "<|startoftext|>"
  add "<|endoftext|>"
  base.replace_file(folder .. "/vocab.json", json.encode(ids))
  base.replace_file(folder .. "/merges.txt", table.concat(merges, "\n") .. "\n")
  return n
end

--- Write the folder of CLIP's text half.
---@param folder string
---@param seed integer
---@param change table|nil  fields of weights.clip_config
function weights.clip(folder, seed, change)
  local config, rows = nn.merged(weights.clip_config, change), {}
  base.make_dir(folder)
  config.vocab_size = byte_pairs(folder)
  base.replace_file(folder .. "/config.json", json.encode(config))
  for i, row in ipairs(clip_sizes:tensors(config)) do
    local t = T.new("f32", row.shape):fill_normal(seed, "clip", i)
    local norm = row.name:find "norm" and row.name:find "weight$"
    local values = (norm and t * 0.1 + 1 or t * row.shape[#row.shape] ^ -0.5):bytes()
    rows[i] = {name = row.name, dtype = "f32", shape = row.shape, ptr = values, bytes = #values}
  end
  ckpt.write(folder .. "/model.safetensors", rows)
end

-- ---- all models of a recipe

--- Write what recipes/tiny/opensora20 names, at its sizes.
---@param folder string
---@param seed integer
function weights.opensora20(folder, seed)
  local function stage(name)
    return settings.bake("tiny/opensora20", {}, {stage = name})
  end
  local image, compressed = stage("image"), stage("high_compression")
  -- as Flux has it: one product for queries, keys and values, rotation of neighbours
  weights.mmdit(folder .. "/flux.safetensors", nn.merged(image:plain("model"),
    {fused_qkv = true, use_liger_rope = false, cond_embed = false}), seed)
  weights.autoencoder(folder .. "/hunyuan.safetensors", image:plain("vae"), seed + 1)
  weights.autoencoder(folder .. "/dc_ae.safetensors", compressed:plain("vae"), seed + 2)
  weights.t5(folder .. "/t5", seed + 3)
  weights.clip(folder .. "/clip", seed + 4)
end

-- ---- true shapes

-- a folder with config.json and weights that are zeros: a hole in the file
local function write_hole(folder, config, list)
  base.make_dir(folder)
  base.replace_file(folder .. "/config.json", json.encode(config))
  large.hole(folder .. "/model.safetensors", list)
end

-- the parameters that a model declares, but those of other numbers than zero
local function declared(declare, left)
  local params, list = G.params("bf16"), {}
  declare(params)
  params:seal()
  for _, p in ipairs(params:list()) do
    list[#list + 1] = not left[p.name] and {name = p.name, shape = p.shape, n = p.count} or nil
  end
  return list
end

-- a released T5 encoder with a tokenizer of the demo's words
local function t5_hole(folder)
  local s = t5_sizes.of_name(folder)
  if not s then
    base.raise("MR_E_USAGE", ("%s: expected a name that ends in t5-v1_1-SIZE, SIZE small, base, "
      .. "large, xl or xxl"):format(folder))
  end
  local config, list = {}, {}
  for field, value in pairs(weights.t5_config) do
    config[field] = s[field] or value
  end
  for i, row in ipairs(t5_sizes:tensors(s)) do
    list[i] = {name = row.name, shape = row.shape, n = T.count(row.shape)}
  end
  write_hole(folder, config, list)
  base.replace_file(folder .. "/spiece.model", tokenizer())
end

-- the released video autoencoder of Open-Sora 1.2
local function vae_hole(folder)
  local auto = opensora_vae.new(nil, {})
  local config = {model_type = "VideoAutoencoderPipeline", vae_2d = kl.defaults,
    vae_temporal = temporal.defaults}
  write_hole(folder, config, declared(function(params)
    auto:declare(nn.scope(params), {where = folder, spatial = kl.defaults,
      temporal = temporal.defaults, scale = {1, 1, 1, 1}, shift = {0, 0, 0, 0}})
  end, {scale = true, shift = true}))
end

-- the released diffusion model of Open-Sora 1.2: 1.1 G weights
local function stdit3_hole(folder)
  local config = {model_type = "STDiT3", depth = 28, hidden_size = 1152, num_heads = 16,
    patch_size = {1, 2, 2}, in_channels = 4, caption_channels = 4096, model_max_length = 300,
    input_sq_size = 512, mlp_ratio = 4.0, qk_norm = true, pred_sigma = true}
  write_hole(folder, config, declared(function(params) stdit3.new(params, config) end, {}))
end

--- Write the folder of a released model whose weights are zeros: true names and shapes over a hole
-- in the file, kilobytes of disk. For seeing what it takes.
---@param folder string  its name tells which: t5-v1_1-SIZE, OpenSora-VAE-v1.2, OpenSora-STDiT-v3
---@return boolean       false: it names none of these
function weights.hole(folder)
  local holes = {["OpenSora-VAE-v1.2"] = vae_hole, ["OpenSora-STDiT-v3"] = stdit3_hole}
  local name = folder:match("[^/]+$")
  local write = holes[name] or name:find("^t5%-v1_1%-") and t5_hole
  if write then
    write(folder)
  end
  return write ~= nil
end

return weights
