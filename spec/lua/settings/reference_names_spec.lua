--- Our paths in the spelling of the references.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local json = require "moonreel.core.json"
local names = require "moonreel.settings.reference_names"
local override = require "moonreel.recipe.override"

describe("reference_names.of", function()
  it("returns names that lead back to the field", function()
    for _, row in ipairs(require("moonreel.recipe.registry").get().rows) do
      for _, system in ipairs(names.systems) do
        local name = names.of(system, row.path)
        local target = name and override.target(name)
        -- 1.2 keeps sampling at the root, where a name may be the run's own: batch_size
        if name and not (system == "opensora-1.2" and row.path:match("^sampling%.")) then
          assert.is_truthy(target, ("%s: %s for %s"):format(system, name, row.path))
          assert.equal(row.path, table.concat(target.keys, "."), ("%s: %s"):format(system, name))
        end
      end
    end
  end)

  it("has each top-level name of the references' own recipes", function()
    local spelled = { ["opensora-1.2"] = {}, ["opensora-2.0"] = {} }
    for _, row in ipairs(require("moonreel.recipe.registry").get().rows) do
      for system, list in pairs(spelled) do
        local name = names.of(system, row.path)
        if name then
          list[name:match("^[^.]+")] = true
        end
      end
    end
    for _, recipe in pairs(
        json.decode(base.read_file("spec/golden/recipes/opensora-1.2.json")).recipes) do
      for key in pairs(recipe) do
        assert.is_true(spelled["opensora-1.2"][key], key)
      end
    end
    -- 2.0 has lr and eps twice: at the root and inside optim
    for _, config in pairs(
        json.decode(base.read_file("spec/golden/recipes/opensora-2.0.json")).configs) do
      for key in pairs(config.values) do
        assert.is_true(spelled["opensora-2.0"][key] or key == "lr" or key == "eps"
          or key == "lr_scheduler", key)
      end
    end
  end)
end)

describe("moonreel show", function()
  it("prints a reference's names with --as, and refuses unknown references", function()
    local out, err, code = folder.moonreel("show opensora-1.2/stage1 --as opensora-1.2")
    assert.equal(0, code)
    assert.matches("\nadam_eps +1e%-15", out)
    assert.matches('note: compat = "opensora%-1.2" has no name in opensora%-1.2', err)
    out = folder.moonreel("show opensora-2.0/train/image --as opensora-2.0 2>&1")
    assert.matches('\nae%.type +"hunyuan_vae"', out)
    assert.matches('\noptim%.cls +"HybridAdam"', out)
    local _, message, exit = folder.moonreel("show tiny/demo --as sora")
    assert.equal(2, exit)
    assert.matches("%-%-as: expected opensora%-1.2 or opensora%-2.0, got 'sora'", message)
  end)

  it("prints records as blocks with --tree", function()
    local out = folder.moonreel("show tiny/demo --tree --changed")
    assert.matches(
      "\nmodel\n  caption_channels = 128 +%-%- recipes/tiny/demo%.lua:%d+\n  depth = 3", out)
    assert.matches("\nbucket_config\n  32px\n    1 = ", "\n" .. out)
  end)
end)
