--- Maps names of diffusers' FluxTransformer2DModel to those of Flux, which the parameters have.
-- Tensors without a corresponding parameter get a name here: values and hidden layer of a single
-- block, which are separate there, and the last modulation, whose halves are swapped. Ref:
-- weights.md.
-- @module moonreel.models.mmdit.names
local names = { v = "v_proj", mlp = "mlp_proj", swapped = "final_layer.scale_shift" }

-- the part before weight and bias: in diffusers, in Flux; `#` is the number of a block
local stems = {
  { "x_embedder", "img_in" }, { "context_embedder", "txt_in" },
  { "norm_out.linear", names.swapped }, { "proj_out", "final_layer.linear" },
}

-- whole names, in the same form
local whole = {}

local function add(list, theirs, ours) list[#list + 1] = { theirs, ours } end

for theirs, ours in pairs { timestep = "time_in", text = "vector_in", guidance = "guidance_in" } do
  for i, layer in ipairs { "in_layer", "out_layer" } do
    add(stems, ("time_text_embed.%s_embedder.linear_%d"):format(theirs, i), ours .. "." .. layer)
  end
end

-- a stream of a double block in diffusers: modulation, projections, norms, and MLP
local function add_stream(side, modulation, products, norms, mlp)
  local theirs, ours = "transformer_blocks.#.", "double_blocks.#." .. side
  add(stems, theirs .. modulation .. ".linear", ours .. "_mod.lin")
  for i, product in ipairs { "q_proj", "k_proj", "v_proj", "proj" } do
    add(stems, theirs .. "attn." .. products[i], ours .. "_attn." .. product)
  end
  for i, norm in ipairs { "query", "key" } do
    add(whole, theirs .. "attn." .. norms[i] .. ".weight",
      ("%s_attn.norm.%s_norm.scale"):format(ours, norm))
  end
  add(stems, theirs .. mlp .. ".net.0.proj", ours .. "_mlp.0")
  add(stems, theirs .. mlp .. ".net.2", ours .. "_mlp.2")
end

add_stream("img", "norm1", { "to_q", "to_k", "to_v", "to_out.0" }, { "norm_q", "norm_k" }, "ff")
add_stream("txt", "norm1_context", { "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out" },
  { "norm_added_q", "norm_added_k" }, "ff_context")

for theirs, ours in pairs { ["norm.linear"] = "modulation.lin", ["attn.to_q"] = "q_proj",
    ["attn.to_k"] = "k_proj", ["attn.to_v"] = names.v, proj_mlp = names.mlp,
    proj_out = "linear2" } do
  add(stems, "single_transformer_blocks.#." .. theirs, "single_blocks.#." .. ours)
end
for theirs, ours in pairs { norm_q = "query_norm", norm_k = "key_norm" } do
  add(whole, ("single_transformer_blocks.#.attn.%s.weight"):format(theirs),
    ("single_blocks.#.norm.%s.scale"):format(ours))
end

-- a name as a pattern with a number in place of `#`
local function pattern(name) return (name:gsub("%p", "%%%0"):gsub("%%#", "(%%d+)")) end

local function text(name) return (name:gsub("#", "%%1")) end

--- Are these the names of a file of diffusers?
---@param has table<string, any>  names as keys
---@return boolean
function names.is_diffusers(has)
  return has["time_text_embed.timestep_embedder.linear_1.weight"] ~= nil
    and has["x_embedder.weight"] ~= nil
end

--- The rename rules, in the form of layouts of moonreel.ckpt.start.
---@return table[]  {Lua pattern, text}
function names.rules()
  local list = {}
  for _, row in ipairs(stems) do
    list[#list + 1] = { "^" .. pattern(row[1]) .. "%.(%a+)$",
      text(row[2]) .. (row[1]:find("#", 1, true) and ".%2" or ".%1") }
  end
  for _, row in ipairs(whole) do
    list[#list + 1] = { "^" .. pattern(row[1]) .. "$", text(row[2]) }
  end
  return list
end

return names
