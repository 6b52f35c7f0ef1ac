--- Each shipped recipe bakes, repeats nothing that it inherits, and contains the lines that its
-- values come from.
local app = require "moonreel.app"
local base = require "moonreel.core.base"
local describe_fields = require "moonreel.recipe.describe"
local files = require "moonreel.recipe.files"
local readers = require "moonreel.settings.readers"
local registry = require "moonreel.recipe.registry"
local settings = require "moonreel.settings"
local unread = require "spec.support.unread"

-- files that return a recipe; the others are helpers
local function recipes()
  local names = {}
  for _, name in ipairs(files.shipped_names()) do
    local text = app.embedded("recipes/" .. name .. ".lua")
    if text:find("return recipe", 1, true) then
      names[#names + 1] = name
    end
  end
  return names
end

local function last(leaf) return leaf.chain[#leaf.chain] end

describe("shipped recipes", function()
  it("all bake", function()
    local count = 0
    for _, name in ipairs(recipes()) do
      settings.bake(name)
      count = count + 1
    end
    assert.is_true(count >= 40)
  end)

  it("set no field that nothing reads", function()
    for _, name in ipairs(recipes()) do
      assert.same({}, readers.missing(settings.bake(name)), name)
    end
    -- the check finds such a field
    unread("batch_size", function()
      assert.equal(1, #readers.missing(settings.bake("tiny/demo", { "batch_size=4" })))
    end)
  end)

  it("set no field that is not built", function()
    for _, one in ipairs(describe_fields.fields(true)) do
      assert.are_not.equal("not built yet", one.reader, one.field)
    end
    for record, schema in pairs(registry.get().root.fields) do
      for type, of_type in pairs(schema.types or {}) do
        assert.are_not.equal(false, of_type.reader, record .. ".type = " .. type)
      end
    end
  end)

  -- a mixin's value may equal one that a user of it already inherits
  local mixins = { ["opensora-2.0/train/i2v"] = true, ["opensora-1.2/lambda/speedrun"] = true,
    ["opensora-1.2/lambda/bump"] = true,
    ["mixins/bump"] = true,
    -- a value reset to the default changes what stages inherit
    ["tiny/opensora20"] = true }

  it("set nothing that they already inherit", function()
    for _, name in ipairs(recipes()) do
      local file = "recipes/" .. name .. ".lua"
      for _, leaf in ipairs(settings.bake(name):leaves()) do
        local link, before = last(leaf), leaf.chain[#leaf.chain - 1]
        if link and link.set and not mixins[name] and link.at:sub(1, #file + 1) == file .. ":" then
          -- below recipe.replace only the default is inherited
          local inherited = link.replace and (leaf.chain[1].set and {} or leaf.chain[1])
            or before or {}
          assert.is_false(inherited.value == link.value,
            ("%s sets %s = %s, which %s gives already"):format(link.at, leaf.path,
              link.value, tostring(inherited.at)))
        end
      end
    end
  end)

  -- lines that name neither the key nor the value, with the reason
  local exceptions = {
    ["recipes/lib/frames.lua:4"] = "entries of a span of lengths are made in a loop",
    ["recipes/opensora-2.0/parts.lua:19"] = "train/high_compression sets scaling_factor by code: "
      .. "that has the line of the constructor",
  }

  it("have a line for each leaf that names its key or its value", function()
    local checked, used = 0, {}
    local function check(name, leaf)
      local at = last(leaf).at
      -- a leaf from a helper: the second place is where it was written
      local file, line = at:match("built at (.-):(%d+)%)$")
      if not file then
        file, line = at:match("^(.-):(%d+)$")
      end
      local text = app.embedded(file)
      for _ = 2, tonumber(line) do
        text = text:gsub("^[^\n]*\n", "", 1)
      end
      text = text:match("^[^\n]*")
      local key, value = tostring(leaf.keys[#leaf.keys]), last(leaf).value
      local words = { key, value, (value:gsub('"', "")), (key:gsub("_", "-")) }
      for _, spelling in ipairs(leaf.row.spellings or {}) do
        words[#words + 1] = spelling:match("[^.]*$")
      end
      -- `vae = recipe.remove` resets the whole record: its line names the record
      if leaf.value == leaf.row.default then
        words[#words + 1] = tostring(leaf.keys[1])
      end
      for _, word in ipairs(words) do
        if text:find(word, 1, true) then
          checked = checked + 1
          return
        end
      end
      local place = file .. ":" .. line
      assert.is_truthy(exceptions[place],
        ("%s: %s is said to come from %s: %s"):format(name, leaf.path, at, text))
      used[place] = true
    end
    for _, name in ipairs(recipes()) do
      local whole = settings.bake(name)
      local parts = { whole }
      for i, stage in ipairs(whole.stages or {}) do
        parts[i + 1] = settings.bake(name, nil, { stage = stage.name })
      end
      for _, part in ipairs(parts) do
        for _, leaf in ipairs(part:leaves()) do
          if last(leaf) and last(leaf).set then
            check(name, leaf)
          end
        end
      end
    end
    assert.is_true(checked > 2000, checked)
    -- each exception is still needed
    for place in pairs(exceptions) do
      assert.is_true(used[place], place)
    end
  end)

  it("keep their hashes", function()
    local known, missing = {}, {}
    for line in base.read_file("spec/golden/recipes/hashes.txt"):gmatch("[^\n]+") do
      local hash, name = line:match("^(%x+)  (%S+)$")
      if hash then
        known[name] = hash
      end
    end
    for _, name in ipairs(recipes()) do
      local hash = settings.bake(name).hash
      if known[name] ~= hash then
        missing[#missing + 1] = hash .. "  " .. name
      end
    end
    assert.equal("", table.concat(missing, "\n"), "meant? then: moonreel "
      .. "spec/golden/recipes/hashes.lua > spec/golden/recipes/hashes.txt")
  end)

  it("read no JSON, and stay short", function()
    local lines = { ["opensora-1.2"] = 0, ["opensora-2.0"] = 0 }
    for _, name in ipairs(files.shipped_names()) do
      local text = app.embedded("recipes/" .. name .. ".lua")
      assert.is_nil(text:find("json", 1, true), name)
      local family = name:match("^[^/]+")
      if lines[family] and not name:match("buckets$") then
        lines[family] = lines[family] + select(2, text:gsub("\n", ""))
      end
    end
    assert.is_true(lines["opensora-1.2"] <= 250, lines["opensora-1.2"])
    assert.is_true(lines["opensora-2.0"] <= 400, lines["opensora-2.0"])
  end)
end)
