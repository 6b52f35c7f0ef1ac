--- The registry: each row is complete, and no two rows conflict.
-- Covers: lua/moonreel/*/*_fields.lua lua/moonreel/models/*/fields.lua
-- lua/moonreel/recipe/fields/*.lua lua/moonreel/recipe/kinds.lua
local kinds = require "moonreel.recipe.kinds"
local registry = require "moonreel.recipe.registry"
local when = require "moonreel.recipe.when"

describe("registry", function()
  local all = registry.get()

  it("has a help text, a known effect and a resume rule in each row", function()
    for _, row in ipairs(all.rows) do
      assert.is_true(type(row.help) == "string" and #row.help > 2, row.path)
      assert.is_truthy(({ run = true, speed = true, nothing = true })[row.affects], row.path)
      assert.is_truthy(({ free = true, warn = true, refuse = true })[row.resume], row.path)
      assert.is_true(row.reader ~= nil or row.no_meaning ~= nil, row.path .. " names no reader")
    end
  end)

  it("has only keys that some code reads", function()
    local known = {}
    for word in ("default help unit min max choices none reader spellings affects resume position "
        .. "when word no_meaning path types"):gmatch("%S+") do
      known[word] = true
    end
    for _, row in ipairs(all.rows) do
      for key in pairs(row) do
        assert.is_true(math.type(key) == "integer" or known[key], row.path .. ": " .. tostring(key))
      end
    end
  end)

  it("has defaults and presets that their own rows accept", function()
    for _, row in ipairs(all.rows) do
      local schema = kinds.schema(row[2], row)
      if row.default ~= nil and type(row.default) ~= "function" and schema.tag ~= "map" then
        assert.is_not_nil(kinds.check(schema, row.default), row.path)
      end
      assert.is_true(row.default ~= nil or row.none or schema.tag == "map",
        row.path .. " has neither a default nor none")
    end
    for name, record in pairs(all.root.fields) do
      for type_name, of_type in pairs(record.types or {}) do
        for field, value in pairs(of_type.preset) do
          local schema = registry.field(record, field, type_name)
          assert.is_not_nil(schema and kinds.check(schema, value),
            name .. "." .. field .. " of " .. type_name)
        end
      end
    end
  end)

  it("has spellings that lead to fields and hide none", function()
    for spelling, keys in pairs(all.spellings) do
      local at = all.root
      for _, key in ipairs(keys) do
        at = registry.field(at, key)
      end
      assert.is_not_nil(at, spelling)
      local record = all.root
      local parts = registry.split(spelling)
      for i = 1, #parts - 1 do
        record = record and registry.field(record, parts[i])
      end
      if record and record.fields then
        assert.is_nil(registry.field(record, parts[#parts]), spelling .. " hides a field")
      end
    end
  end)

  it("has conditions on existing fields with valid values", function()
    for _, row in ipairs(all.rows) do
      if row.when then
        for _, condition in ipairs(when.conditions(row)) do
          local at, path = all.root, condition[1]:gsub("^%.", row.path:match "^(.*%.)" or "")
          for _, key in ipairs(registry.split(path)) do
            at = registry.field(at, key)
          end
          for i = 2, #condition do
            assert.is_not_nil(kinds.check(at, condition[i]), row.path)
          end
        end
      end
    end
  end)

  it("has no field with the name of a method of settings", function()
    for _, name in ipairs { "get", "origin", "chain", "leaves", "plain",
        "to_json", "to_recipe", "require_readers", "hash", "recipe", "notes" } do
      assert.is_nil(registry.field(all.root, name))
    end
  end)
end)
