--- Names and shapes of the parameters of released models, in a JSON file.
-- @module spec.golden.runner.tables
local G = require "moonreel.core.graph"
local families = require "moonreel.recipe.families"
local json = require "moonreel.core.json"
local nn = require "moonreel.nn"

-- the family of a table: a pattern over its name, the family and fields of it
local known = {
  { "^mmdit_opensora_v2", "mmdit", { fused_qkv = false, cond_embed = true } },
  { "^mmdit_t2v", "mmdit", { fused_qkv = false } },
  { "^mmdit_flux", "mmdit", { guidance_embed = true } },
  { "^mmdit_high_compression", "mmdit", { fused_qkv = false, cond_embed = true, in_channels = 128,
    patch_size = 1 } },
  { "^autoencoder_2d", "autoencoder_2d" },
  { "^hunyuan_vae", "hunyuan_vae" },
  { "^video_dc_ae", "dc_ae" },
}

local function family_of(name)
  for _, row in ipairs(known) do
    for _, family in ipairs(name:find(row[1]) and families.all() or {}) do
      if family.name == row[2] then
        return family, row[3]
      end
    end
  end
end

-- what a family declares with its defaults and some other fields: shapes by name, all elements
local function declared(family, others)
  local params, shapes, total = G.params "f32", {}, 0
  local made = family:open("init").new(params, nn.merged(family:defaults(), others),
    { dtype = "f32" })
  for _, part in ipairs(made.parts and made:parts "all" or {}) do
    part.declare(params)
  end
  params:seal()
  for _, p in ipairs(params:list()) do
    shapes[p.name], total = table.concat(p.shape, "x"), total + p.count
  end
  return shapes, total
end

-- names that one has and the other lacks, or has in another shape. A table with a note has the
-- first block of those that are alike
local function differing(has, model)
  local n, wanted = 0, model.parameters
  for name in pairs(wanted) do
    n = n + (has[name] and 0 or 1)
  end
  for name, shape in pairs(has) do
    local row = model.note and name:gsub("_blocks%.%d+%.", "_blocks.0.") or name
    n = n + (wanted[row] and shape == table.concat(wanted[row], "x") and 0 or 1)
  end
  return n
end

local function tables(text, result)
  for name, model in pairs(json.decode(text).models) do
    local family, others = family_of(name)
    if family then
      local has, total = declared(family, others)
      result:exact(name, differing(has, model))
      result:exact(name .. " total", math.abs(total - model.total))
    else
      result:leave(name, "not built yet")
    end
  end
end

return { { "^param_tables", tables } }
