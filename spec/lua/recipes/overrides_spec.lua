--- Overrides made from the registry: a valid value changes its leaf and what derives from it, an invalid one is refused by name.
local app = require "moonreel.app"
local files = require "moonreel.recipe.files"
local kinds = require "moonreel.recipe.kinds"
local settings = require "moonreel.settings"

-- another value that fits a leaf, and one that does not, as text; nil where there is none
local function others(leaf)
  local schema, value = leaf.schema, leaf.value
  local tag = schema.tag
  if schema.choices then
    for _, choice in ipairs(schema.choices) do
      if choice ~= value then return choice, "no-such-choice" end
    end
    return nil, "no-such-choice"
  elseif tag == "integer" then
    local other = (value or schema.min or 0) + 1
    if schema.max and other > schema.max then other = other - 2 end
    return tostring(other), "1.5"
  elseif tag == "number" then
    return kinds.number_text((value or 0) * 0.5 + 0.125), "often"
  elseif tag == "boolean" then
    return tostring(not value), "maybe"
  elseif tag == "text" or tag == "checkpoint" then
    return (type(value) == "string" and value or "") .. "x", nil
  elseif tag == "bucket" then
    return "(0.0625, 3)", "(2, 1)"
  elseif tag == "list" then
    local items = {}
    for i, item in ipairs(value or {}) do items[i] = type(item) == "number" and kinds.number_text(item) or kinds.show(item) end
    if type((value or {})[1]) ~= "number" then return nil, "[1" end
    items[1] = kinds.number_text(schema.element.tag == "integer" and value[1] + 1 or value[1] * 0.5)
    return "[" .. table.concat(items, ", ") .. "]", "[1"
  end
end

-- paths of leaves that derive from `path`, directly or not
local function dependants(leaves, path)
  local out = { [path] = true }
  local grown = true
  while grown do
    grown = false
    for _, leaf in ipairs(leaves) do
      for _, link in ipairs(leaf.chain) do
        for _, read in ipairs(link.reads or {}) do
          if out[read] and not out[leaf.path] then out[leaf.path], grown = true, true end
        end
      end
    end
  end
  return out
end

describe("overrides of shipped recipes", function()
  local done, cases = {}, {}
  for _, name in ipairs(files.shipped_names()) do
    if app.embedded("recipes/" .. name .. ".lua"):find("return recipe", 1, true) then
      local leaves = settings.bake(name):leaves()
      for _, leaf in ipairs(leaves) do
        local link = leaf.chain[#leaf.chain]
        -- every field once, in the first recipe that sets it; `type` changes which fields there are
        local key = leaf.row.path
        if link and link.set and not done[key] and not key:match("type$") and key ~= "stages" and not leaf.row.when then
          done[key] = true
          cases[#cases + 1] = { name = name, leaf = leaf, leaves = leaves }
        end
      end
    end
  end

  it("cover the fields that recipes set", function() assert.is_true(#cases > 80, #cases) end)

  it("with a valid value change exactly the leaf and what derives from it", function()
    local count = 0
    for _, case in ipairs(cases) do
      local valid = others(case.leaf)
      if valid then
        local was = {}
        for _, leaf in ipairs(case.leaves) do was[leaf.path] = kinds.show(leaf.raw) end
        local argument = case.leaf.path .. "=" .. valid
        local now = settings.bake(case.name, { argument })
        local allowed = dependants(now:leaves(), case.leaf.path)
        local changed = false
        for _, leaf in ipairs(now:leaves()) do
          local differs = kinds.show(leaf.raw) ~= was[leaf.path]
          if leaf.path == case.leaf.path then
            changed = differs
          elseif differs then
            assert.is_true(allowed[leaf.path], ("%s %s changed %s too"):format(case.name, argument, leaf.path))
          end
        end
        assert.is_true(changed, case.name .. " " .. argument .. " changed nothing")
        assert.equal(argument, now:origin(case.leaf.path))
        count = count + 1
      end
    end
    assert.is_true(count > 70, count)
  end)

  it("with an invalid value are refused by name with exit 2", function()
    for _, case in ipairs(cases) do
      local _, invalid = others(case.leaf)
      if invalid then
        local argument = case.leaf.path .. "=" .. invalid
        local ok, problem = pcall(settings.bake, case.name, { argument })
        assert.is_false(ok, case.name .. " " .. argument)
        assert.equal(2, problem.exit, problem.message)
        assert.equal(1, (problem.message:find(argument .. ": " .. case.leaf.path .. ": expected ", 1, true)), problem.message)
      end
    end
  end)
end)
