--- Fields as tables of text.
local fields_in_words = require "moonreel.recipe.describe"
local registry = require "moonreel.recipe.registry"

describe("fields as text", function()
  it("are sorted by path, with kind, default, reader and spellings", function()
    local rows = {
      { "b", { list = "integer" }, default = function()
        return {}
      end, help = "two", reader = false },
      { "a", "number", default = 0.5, help = "one", spellings = { "first", "uno" },
        reader = "spec" },
      { "c", { map = "text" }, no_meaning = "no one asks", help = "three" },
    }
    registry.with(rows, function()
      local texts = {}
      for i, row in ipairs(fields_in_words.fields()) do
        texts[i] = table.concat({ row.field, row.kind, row.default, row.spellings or "-",
          row.reader }, "|")
      end
      assert.same({ "a|number|0.5|first, uno|spec", "b|list of integer|computed|-|not built yet",
        "c|name -> text|none|-|no meaning here" }, texts)
    end)
  end)
end)
