--- Names and shapes of the parameters and buffers of released models, in a JSON file.
-- @module spec.golden.runner.tables
local G = require "moonreel.core.graph"
local discriminator = require "moonreel.losses.discriminator"
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

-- Declares the parameters of a table: as its family with the defaults and some other fields, or as
-- a discriminator. False: the table is of another model.
local function declare(params, name)
  local inputs, width, layers = name:match "^discriminator_3d .input (%d+), ndf (%d+), (%d+) layers"
  if inputs then
    discriminator.new(params, { input_nc = tonumber(inputs), ndf = tonumber(width),
      n_layers = tonumber(layers) })
    return true
  end
  for _, row in ipairs(known) do
    for _, family in ipairs(name:find(row[1]) and families.all() or {}) do
      if family.name == row[2] then
        local made = family:open("init").new(params, nn.merged(family:defaults(), row[3]),
          { dtype = "f32" })
        for _, part in ipairs(made.parts and made:parts "all" or {}) do
          part.declare(params)
        end
        return true
      end
    end
  end
  return false
end

-- shapes of what is trained and of buffers by name, and the elements of the former
local function declared(params)
  local trained, buffers, total = {}, {}, 0
  for _, p in ipairs(params:list()) do
    local name = p.name:gsub("^" .. discriminator.PREFIX .. "%.", "")
    local shapes = p.buffer and buffers or trained
    shapes[name], total = table.concat(p.shape, "x"), total + (p.buffer and 0 or p.count)
  end
  return trained, buffers, total
end

-- The number of names that one has and the other lacks, or has in another shape. A table with a
-- note has the first of several equal blocks.
local function differing(has, wanted, note)
  local n = 0
  for name in pairs(wanted) do
    n = n + (has[name] and 0 or 1)
  end
  for name, shape in pairs(has) do
    local row = note and name:gsub("_blocks%.%d+%.", "_blocks.0.") or name
    n = n + (wanted[row] and shape == table.concat(wanted[row], "x") and 0 or 1)
  end
  return n
end

-- buffers of a table, without the counters of batches, which no result depends on
local function counted(buffers)
  local list = {}
  for name, shape in pairs(buffers or {}) do
    list[name] = not name:find "num_batches_tracked$" and shape or nil
  end
  return list
end

local function tables(text, result)
  for name, model in pairs(json.decode(text).models) do
    local params = G.params "f32"
    if declare(params, name) then
      local trained, buffers, total = declared(params:seal())
      result:exact(name, differing(trained, model.parameters, model.note))
      result:exact(name .. " buffers", differing(buffers, counted(model.buffers), model.note))
      result:exact(name .. " total", math.abs(total - model.total))
    else
      result:leave(name, "another model")
    end
  end
end

return { { "^param_tables", tables } }
