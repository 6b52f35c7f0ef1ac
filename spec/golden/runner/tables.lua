--- Names and shapes of the parameters of released models, in a JSON file.
-- @module spec.golden.runner.tables
local G = require "moonreel.core.graph"
local families = require "moonreel.recipe.families"
local json = require "moonreel.core.json"

-- the family of a table: a pattern over its name, the record and the type
local known = {
  { "^autoencoder_2d", "vae", "autoencoder_2d" },
  { "^hunyuan_vae", "vae", "hunyuan_vae" },
  { "^video_dc_ae", "vae", "dc_ae" },
}

local function family_of(name)
  for _, row in ipairs(known) do
    if name:find(row[1]) then
      return families.of(row[2], row[3])
    end
  end
end

-- what a family declares with its defaults: shapes by name
local function declared(family)
  local fields, params, shapes = {}, G.params "f32", {}
  for _, row in ipairs(family.fields.fields) do
    fields[row[1]] = row.default
  end
  for _, part in ipairs(family:open("init").new(nil, fields, { dtype = "f32" }):parts "all") do
    part.declare(params)
  end
  params:seal()
  for _, p in ipairs(params:list()) do
    shapes[p.name] = table.concat(p.shape, "x")
  end
  return shapes
end

-- names that one has and the other lacks, or has in another shape
local function differing(has, wanted)
  local n = 0
  for name, shape in pairs(wanted) do
    n = n + (has[name] == table.concat(shape, "x") and 0 or 1)
  end
  for name in pairs(has) do
    n = n + (wanted[name] and 0 or 1)
  end
  return n
end

local function tables(text, result)
  for name, model in pairs(json.decode(text).models) do
    local family = family_of(name)
    if family then
      result:exact(name, differing(declared(family), model.parameters))
    else
      result:leave(name, "not built yet")
    end
  end
end

return { { "^param_tables", tables } }
