--- Where values of settings come from.
-- Covers: lua/moonreel/recipe/fold.lua
local provenance = require "moonreel.settings.provenance"
local settings = require "moonreel.settings"

describe("provenance of settings", function()
  local baked = settings.bake("recipes/tiny/demo", { "lr=1e-3" })

  it("has a row for each link, oldest first, with the value that it replaced", function()
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

  it("names the nearest field for an unknown one", function()
    local ok, problem = pcall(provenance.rows, baked, "optim.lrr")
    assert.is_false(ok)
    assert.matches("optim%.lr", tostring(problem))
  end)

  local folder = require "spec.support.folder"

  -- set_by, value and sources of each row about a key, without the folder's path
  local function report(text, key, files)
    local dir = folder.new()
    for name, content in pairs(files or {}) do
      dir:write(name, content)
    end
    local s = dir:bake(text)
    -- the settings that a child process sends have the same provenance
    local again = settings.from_json(s:to_json(), "x")
    local out = {}
    for i, row in ipairs(provenance.rows(s, key, true)) do
      local set_by = row.set_by:gsub(dir.path:gsub("%p", "%%%0") .. "/", "")
      out[i] = ("%s %s %s%s"):format(set_by, row.field, row.value,
        row.from and " from " .. row.from or "")
      assert.same(row, provenance.rows(again, key, true)[i])
    end
    dir:remove()
    return out
  end

  it("reports what a function that returns a table was computed from", function()
    local text = "return recipe { epochs = 4, optim = function(r) return { lr = 10 * r.epochs, "
      .. "eps = 1 } end }"
    assert.same({ "default optim.lr 0.0001", "main.lua:1 optim.lr 40.0 from epochs" },
      report(text, "lr"))
    assert.equal("main.lua:1 optim.eps 1.0 from epochs", report(text, "optim.eps")[2])
    -- also inside a map, and for a function inside a list
    assert.same({ "main.lua:1 bucket_config.a.1 { 1.0, 4 } from epochs" },
      report("return recipe { epochs = 4, bucket_config = { a = function(r) return { [1] = { 1, "
        .. "r.epochs } } end } }", "bucket_config"))
    assert.equal("main.lua:1 optim.betas { 0.5, 0.75 } from seed",
      report("return recipe { seed = 2, optim = { betas = { function(r) return 1 / r.seed end, "
        .. "0.75 } } }", "optim.betas")[2])
  end)

  it("reports who removed an entry, also of a default map", function()
    local base = { ["base.lua"] = "return recipe {\n mask_ratios = { random = 0.5, identity = 0.5 "
      .. "} }" }
    assert.same({ "base.lua:2 mask_ratios.random 0.5", "main.lua:2 mask_ratios.random removed" },
      report('return recipe.extend("./base") {\n mask_ratios = { random = recipe.remove } }',
        "mask_ratios.random", base))
    assert.same({ "base.lua:2 mask_ratios.random 0.5", "main.lua:3 mask_ratios.random removed" },
      report('return recipe.extend("./base") {\n\n mask_ratios = recipe.replace { identity = 1 } }',
        "mask_ratios.random", base))
    local gone = report('return recipe { resolutions = { ["144p"] = recipe.remove } }',
      "resolutions.144p.pixels")
    assert.same({ "default resolutions.144p.pixels 36864",
      "main.lua:1 resolutions.144p.pixels removed" }, gone)
    -- an entry that never existed has no provenance
    assert.is_false(pcall(report, "return recipe {}", "mask_ratios.random"))
  end)
end)
