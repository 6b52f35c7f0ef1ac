--- Where values of settings come from.
local provenance = require "moonreel.settings.provenance"
local settings = require "moonreel.settings"

describe("provenance of settings", function()
  local baked = settings.bake("recipes/tiny/demo", { "lr=1e-3" })

  it("is a row per link, oldest first, each with what it replaced", function()
    local rows = provenance.rows(baked, "lr")
    local last = rows[#rows]
    assert.equal("lr=1e-3", last.set_by)
    assert.equal(rows[#rows - 1].value, last.replaced)
    assert.equal("optim.lr", rows[1].field)
    assert.equal("", last.field)
    assert.equal("optim.lr", provenance.rows(baked, "lr", true)[#rows].field)
  end)

  it("covers all values below a record", function()
    local fields = {}
    for _, row in ipairs(provenance.rows(baked, "optim", true)) do
      fields[row.field] = true
    end
    assert.is_true(fields["optim.lr"])
    for field in pairs(fields) do
      assert.matches("^optim%.", field)
    end
  end)

  it("names the nearest field for one that is none", function()
    local ok, problem = pcall(provenance.rows, baked, "optim.lrr")
    assert.is_false(ok)
    assert.matches("optim%.lr", tostring(problem))
  end)
end)
