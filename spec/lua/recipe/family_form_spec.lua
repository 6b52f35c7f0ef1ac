--- The form of a family's fields.lua: keys that nothing reads and invalid values are refused with
-- the file and the field.
local fails = require "spec.support.fails"
local families = require "moonreel.recipe.families"
local form = require "moonreel.recipe.family_form"

describe("fields.lua of a family", function()
  -- a good file, changed by f
  local function made(f)
    local one = { record = "vae", types = { toy = { help = "a toy" } },
      fields = { { "wide", "integer", default = 3, min = 1, help = "width" } } }
    return f and f(one) or one
  end

  local function refused(pattern, f)
    fails("MR_E_RECIPE", "a/fields%.lua: " .. pattern, form, "a/fields.lua", made(f))
  end

  it("of each of our families is accepted", function()
    assert.equal("toy", next(form("a/fields.lua", made()).types))
    for _, family in ipairs(families.all()) do
      assert.equal(family.fields, form(family.name, family.fields))
    end
  end)

  it("is refused when it returns another value", function()
    refused("it returns nothing; expected {record", function() return true end)
    refused("it returns number", function() return 3 end)
    refused('record is nil; expected a text such as "vae"', function(one) one.record = nil end)
    refused("record is number", function(one) one.record = { "vae", 3 } end)
    refused("types is nil; expected", function(one) one.types = nil end)
    refused("types is table; expected", function(one) one.types = {} end)
    refused("types%[number%]: expected NAME", function(one) one.types = { "toy" } end)
    refused('types%["toy"%]: expected NAME', function(one) one.types.toy.help = nil end)
    refused("types%.toy has the key 'presets'.*did you mean 'preset'",
      function(one) one.types.toy.presets = {} end)
    refused("fields is nil; expected a list", function(one) one.fields = nil end)
  end)

  it("is refused when a row has text that would be lost", function()
    refused("field 'wide' has the key 'mim'.*did you mean 'min'%?",
      function(one) one.fields[1].mim = 1 end)
    refused("field 'wide': resume is \"refse\"; expected free, refuse, warn",
      function(one) one.fields[1].resume = "refse" end)
    refused("field 'wide': affects is boolean; expected nothing, run, speed",
      function(one) one.fields[1].affects = false end)
    refused("field 'wide' is declared twice", function(one) one.fields[2] = one.fields[1] end)
    for _, row in ipairs { 3, { "wide" }, { "wide", "integer" }, { 1, "integer", help = "x" } } do
      refused("row 1 of fields: expected {NAME, KIND", function(one) one.fields[1] = row end)
    end
  end)
end)
