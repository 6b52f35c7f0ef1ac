--- Files of MMDiT: queries, keys and values as one product or as three, and the rotation on
-- neighbours or on halves of a head. Names do not tell the rotation: files of Flux, whose products
-- are fused, turn neighbours, those of Open-Sora 2.0 halves. Ref: opensora-2.0.md 1.6, weights.md.
-- @module moonreel.models.mmdit.weights
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"

local function is_mmdit(has) return has["double_blocks.0.img_mod.lin.weight"] ~= nil end

local weights = {
  kinds = { { name = "MMDiT", is = is_mmdit,
    facts = { { "depth", "^double_blocks%.(%d+)%." },
      { "depth_single_blocks", "^single_blocks%.(%d+)%." },
      { "hidden_size", "img_in.weight", 1 }, { "in_channels", "img_in.weight", 2 } } } },
}

-- rows [from, to) of a matrix or of a bias
local function rows(t, from, to) return t:slice(0, from, to):clone() end

-- Rows of each head in the other order: halves hold row 2 j at j and row 2 j + 1 at d / 2 + j.
---@param t mr.Tensor     [h d, ...]
---@param d integer       rows of a head
---@param to_halves boolean
local function turned(t, d, to_halves)
  local rest = T.count(t.shape) // t.shape[1]
  local heads = t.shape[1] // d
  local split = to_halves and { heads, d // 2, 2, rest } or { heads, 2, d // 2, rest }
  return t:reshape(split):permute { 0, 2, 1, 3 }:clone():reshape(t.shape)
end

-- where a fused product stands, and the parts of a separate one: names behind the block's
local double = { fused = "qkv", parts = { "q_proj", "k_proj", "v_proj" } }
local single = { fused = "linear1", parts = { "q_proj", "k_proj", "v_mlp" } }

-- the block of a parameter, its product, and weight or bias: nil of others
local function product_of(name)
  local block, product, kind = name:match "^(double_blocks%.%d+%.%a+_attn%.)([%a_]+)%.(%a+)$"
  if block then
    return block, product, kind, double
  end
  block, product, kind = name:match "^(single_blocks%.%d+%.)([%a_%d]+)%.(%a+)$"
  if block then
    return block, product, kind, single
  end
end

-- which part of its block's three a product is
local function part_of(form, product)
  for i, name in ipairs(form.parts) do
    if name == product then
      return i
    end
  end
end

-- the rotation of a file: "halves" or "pairs"
local function rotation_of(c, has)
  return c.rope_of_weights or has["double_blocks.0.img_attn.qkv.weight"] and "pairs"
    or has["single_blocks.0.linear1.weight"] and "pairs" or "halves"
end

local function words(list) return table.concat(list, ", ") end

-- a part of a fused product: rows of it
local function part_from_fused(c, form, i, turn)
  local D = c.hidden_size
  return function(tensors)
    local t = tensors[1]
    local last = form == double and i * D or (i < 3 and i * D or t.shape[1])
    t = rows(t, (i - 1) * D, last)
    return turn and i < 3 and turn(t) or t
  end
end

-- a fused product of its three parts
local function fused_from_parts(turn)
  return function(tensors)
    for i = 1, 2 do
      tensors[i] = turn and turn(tensors[i]) or tensors[i]
    end
    return G.concat(tensors, 0)
  end
end

-- a fused product whose queries and keys turn
local function fused_turned(c, turn)
  local D = c.hidden_size
  return function(tensors)
    local t = tensors[1]
    return G.concat({ turn(rows(t, 0, D)), turn(rows(t, D, 2 * D)), rows(t, 2 * D, t.shape[1]) }, 0)
  end
end

-- what a product is made of
local function product_made(c, name, has, turn, how)
  local block, product, kind, form = product_of(name)
  if not block then
    return nil
  end
  local i, fused = part_of(form, product), block .. form.fused .. "." .. kind
  local said = turn and { how } or {}
  if i and has[fused] and not has[name] then
    said[#said + 1] = "a part of a fused product"
    return { from = { fused }, make = part_from_fused(c, form, i, turn), how = words(said) }
  elseif product == form.fused and not has[name] then
    local from = {}
    for k, part in ipairs(form.parts) do
      from[k] = block .. part .. "." .. kind
    end
    said[#said + 1] = "three products as one"
    return { from = from, make = fused_from_parts(turn), how = words(said) }
  elseif turn and product == form.fused then
    return { from = { name }, make = fused_turned(c, turn), how = how }
  elseif turn and i and i < 3 then
    return { from = { name }, make = function(tensors) return turn(tensors[1]) end, how = how }
  end
end

--- How files become the parameters of a model.
---@param c table   fields of the model: fused_qkv, use_liger_rope, hidden_size, num_heads;
---   rope_of_weights: "pairs" or "halves", nil: as the names of products suggest
---@return table    as moonreel.ckpt.start takes it
function weights.map(c)
  local d, own = c.hidden_size // c.num_heads, c.use_liger_rope and "halves" or "pairs"
  local function made(name, has)
    local theirs = rotation_of(c, has)
    local turn = theirs ~= own and function(t) return turned(t, d, own == "halves") end or nil
    local how = ("rotation of %s as of %s"):format(theirs, own)
    if turn and name:find "%.norm%.%a+_norm%.scale$" then
      return { from = { name }, make = function(tensors) return turn(tensors[1]) end, how = how }
    end
    return product_made(c, name, has, turn, how)
  end
  return { made = made, fields = c, sizes = { { "hidden_size", "img_in.weight", 1 },
    { "in_channels", "img_in.weight", 2 }, { "context_in_dim", "txt_in.weight", 2 },
    { "vec_in_dim", "vector_in.in_layer.weight", 2 } },
    counts = { { "depth", "^double_blocks%.(%d+)%." },
    { "depth_single_blocks", "^single_blocks%.(%d+)%." } }, layouts = {
    { name = "MMDiT", is = is_mmdit, rename = {}, dropped = {},
      fresh = { { "^cond_in%.", "an image model has no condition", "cond_in.*" } } } } }
end

return weights
