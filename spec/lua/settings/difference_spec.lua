--- What a resume under another recipe reports.
local difference = require "moonreel.settings.difference"
local folder = require "spec.support.folder"

describe("settings.difference", function()
  local dir
  before_each(function() dir = folder.new() end)
  after_each(function() dir:remove() end)

  it("lists values that differ, with the rule of the field and who set them", function()
    local a = dir:bake('return recipe { lr = 1, model = { depth = 2 }, epochs = 3, mask_ratios = { '
      .. 'random = 0.5 } }')
    local b = dir:bake('return recipe { lr = 1.0, model = { depth = 3 }, epochs = 4 }',
      { "seed=5" })
    local rows = difference(a, b)
    local shown = {}
    for i, row in ipairs(rows) do
      shown[i] = ("%s %s %s %s"):format(row.path, row.was, row.now, row.resume)
    end
    assert.same({ "epochs 3 4 free", "mask_ratios nil none warn", "mask_ratios.random 0.5 nil warn",
      "model.depth 2 3 refuse", "seed 1024 5 refuse" }, shown)
    assert.equal("seed=5", rows[5].at)
    assert.is_true(rows[5].position)
    assert.same({}, difference(a, a))
  end)
end)
