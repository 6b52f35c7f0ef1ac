--- Files of MMDiT: with names of Flux and of Open-Sora 2.0, or of diffusers; with queries, keys and
-- values as one product or as several; with the rotation of neighbours or of halves of a head. A
-- checkpoint of moonreel records its rotation; in other files no name shows it: files of Flux,
-- whose products are fused, and those of diffusers rotate neighbours, those of Open-Sora 2.0
-- halves. Ref: opensora-2.0.md 1.6, weights.md.
-- @module moonreel.models.mmdit.weights
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local names = require "moonreel.models.mmdit.names"

local function is_mmdit(has) return has["double_blocks.0.img_mod.lin.weight"] ~= nil end

local weights = {
  kinds = { { name = "MMDiT", is = is_mmdit,
    facts = { { "depth", "^double_blocks%.(%d+)%." },
      { "depth_single_blocks", "^single_blocks%.(%d+)%." },
      { "hidden_size", "img_in.weight", 1 }, { "in_channels", "img_in.weight", 2 } } },
    { name = "MMDiT in names of diffusers", is = names.is_diffusers,
      facts = { { "depth", "^transformer_blocks%.(%d+)%." },
        { "depth_single_blocks", "^single_transformer_blocks%.(%d+)%." },
        { "hidden_size", "x_embedder.weight", 1 }, { "in_channels", "x_embedder.weight", 2 } } } },
}

-- rows [from, to) of a matrix or of a bias
local function rows(t, from, to) return t:slice(0, from, to):clone() end

-- Reorders the rows of each head: halves have row 2 j at j and row 2 j + 1 at d / 2 + j.
---@param t mr.Tensor     [h d, ...]
---@param d integer       rows of a head
---@param to_halves boolean
local function turned(t, d, to_halves)
  local rest = T.count(t.shape) // t.shape[1]
  local heads = t.shape[1] // d
  local split = to_halves and { heads, d // 2, 2, rest } or { heads, 2, d // 2, rest }
  return t:reshape(split):permute { 0, 2, 1, 3 }:clone():reshape(t.shape)
end

-- ---- products

-- The contents of rows of products: queries, keys, values, the hidden layer of a single block's
-- MLP. A form describes a kind of file; for a model's own products the last form with the name is
-- used.
local double = { { qkv = { "q", "k", "v" } },
  { q_proj = { "q" }, k_proj = { "k" }, v_proj = { "v" } } }
local single = { { linear1 = { "q", "k", "v", "mlp" } },
  { q_proj = { "q" }, k_proj = { "k" }, v_mlp = { "v", "mlp" } },
  { q_proj = { "q" }, k_proj = { "k" }, [names.v] = { "v" }, [names.mlp] = { "mlp" } } }

-- the block of a parameter, its product, weight or bias, and the forms of its block; nil for other
-- parameters
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

-- the contents of a model's product; nil: it has no queries, keys or values
local function parts_of(forms, product)
  for _, form in ipairs(forms) do
    if form[product] then
      return form[product]
    end
  end
end

-- the form of a file
local function form_of(forms, has, block, kind)
  for _, form in ipairs(forms) do
    local all = true
    for product in pairs(form) do
      all = all and has[block .. product .. "." .. kind] ~= nil
    end
    if all then
      return form
    end
  end
end

-- the place of a part in a file: product, index of the part in it, and number of parts
local function place_of(form, part)
  for product, parts in pairs(form) do
    for i, one in ipairs(parts) do
      if one == part then
        return product, i, #parts
      end
    end
  end
end

-- Pieces of a file's products that make up some parts: {product, first, last, count: of its parts,
-- turns}. Parts next to each other are one piece, but only queries and keys are reordered.
local function pieces_of(form, parts, turn)
  local pieces = {}
  for _, part in ipairs(parts) do
    local product, at, count = place_of(form, part)
    local turns, before = turn and (part == "q" or part == "k"), pieces[#pieces]
    if before and before.product == product and before.last == at - 1
        and before.turns == turns then
      before.last = at
    else
      pieces[#pieces + 1] = { product = product, first = at, last = at, count = count,
        turns = turns }
    end
  end
  return pieces
end

-- rows of a product: all of its parts except the last have one row per channel
local function cut(t, D, piece)
  if piece.first == 1 and piece.last == piece.count then
    return t
  end
  return rows(t, (piece.first - 1) * D,
    piece.last == piece.count and t.shape[1] or piece.last * D)
end

-- what was done to a product, as text
local function said_of(pieces, is_same, how)
  local said = { pieces[1].turns and how or nil }
  if not is_same then
    said[#said + 1] = #pieces > 1 and "several products as one" or "a part of a fused product"
  end
  return table.concat(said, ", ")
end

-- how a product is made; nil: the file has it in the right form
local function product_made(c, name, has, turn, how)
  local block, product, kind, forms = product_of(name)
  local parts = forms and parts_of(forms, product)
  local form = parts and form_of(forms, has, block, kind)
  local pieces = form and pieces_of(form, parts, turn ~= nil)
  if not pieces or form[product] and not pieces[1].turns then
    return nil
  end
  local from = {}
  for i, piece in ipairs(pieces) do
    from[i] = block .. piece.product .. "." .. kind
  end
  return { from = from, how = said_of(pieces, form[product], how), make = function(tensors)
    for i, piece in ipairs(pieces) do
      local t = cut(tensors[i], c.hidden_size, piece)
      tensors[i] = piece.turns and turn(t) or t
    end
    return #tensors == 1 and tensors[1] or G.concat(tensors, 0)
  end }
end

-- ---- whole files

-- the name of a rotation
local function named(is_halves) return is_halves and "halves" or "pairs" end

-- the rotation of a file: "halves" or "pairs"; a checkpoint of moonreel records it
local function rotation_of(c, has, said)
  return c.rope_of_weights or said.use_liger_rope ~= nil and named(said.use_liger_rope)
    or has[names.swapped .. ".weight"] and "pairs"
    or has["double_blocks.0.img_attn.qkv.weight"] and "pairs"
    or has["single_blocks.0.linear1.weight"] and "pairs" or "halves"
end

-- exchanges scale and shift of the last modulation
local function swapped(tensors)
  local t = tensors[1]
  local half = t.shape[1] // 2
  return G.concat({ rows(t, half, 2 * half), rows(t, 0, half) }, 0)
end

--- How files become the parameters of a model.
---@param c table   fields of the model: fused_qkv, use_liger_rope, hidden_size, num_heads;
---   rope_of_weights: "pairs" or "halves"; nil: from the file, or from the names of products
---@return table    for moonreel.ckpt.start
function weights.map(c)
  local d, own = c.hidden_size // c.num_heads, named(c.use_liger_rope)
  local function made(name, has, said)
    local theirs = rotation_of(c, has, said)
    local turn = theirs ~= own and function(t) return turned(t, d, own == "halves") end or nil
    local how = ("rotation of %s as of %s"):format(theirs, own)
    if turn and name:find "%.norm%.%a+_norm%.scale$" then
      return { from = { name }, make = function(tensors) return turn(tensors[1]) end, how = how }
    end
    local kind = name:match "^final_layer%.adaLN_modulation%.1%.(%a+)$"
    if kind and has[names.swapped .. "." .. kind] then
      return { from = { names.swapped .. "." .. kind }, make = swapped,
        how = "scale and shift in the other order" }
    end
    return product_made(c, name, has, turn, how)
  end
  local fresh = { { "^cond_in%.", "an image model has no condition", "cond_in.*" } }
  return { made = made, fields = c, sizes = { { "hidden_size", "img_in.weight", 1 },
    { "in_channels", "img_in.weight", 2 }, { "context_in_dim", "txt_in.weight", 2 },
    { "vec_in_dim", "vector_in.in_layer.weight", 2 } },
    counts = { { "depth", "^double_blocks%.(%d+)%." },
    { "depth_single_blocks", "^single_blocks%.(%d+)%." } }, layouts = {
    { name = "MMDiT", is = is_mmdit, rename = {}, dropped = {}, fresh = fresh },
    { name = "diffusers", is = names.is_diffusers, rename = names.rules(), dropped = {},
      fresh = fresh } } }
end

return weights
