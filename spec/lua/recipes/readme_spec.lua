--- Each recipe in recipes/README.md bakes to the values of its lines `--> path = value`.
local base = require "moonreel.core.base"
local folder = require "spec.support.folder"
local kinds = require "moonreel.recipe.kinds"
local settings = require "moonreel.settings"

describe("recipes/README.md", function()
  local dir
  setup(function() dir = folder.new() end)
  teardown(function() dir:remove() end)

  local n = 0
  for block in base.read_file("recipes/README.md"):gmatch("```lua\n(.-)```") do
    n = n + 1
    local place = n
    it(("block %d has the values of its comments"):format(place), function()
      -- in a child process, like a user's own file
      local file, stated = dir:write(("block%d.lua"):format(place), block), 0
      for stage, path, want in block:gmatch("%-%-> ([^\n=]-)(%S+) = ([^\n]+)") do
        stated = stated + 1
        local value = "absent"
        for _, leaf in ipairs(settings.bake(file, nil,
            { stage = stage:match("^stage (%S+): $") }):leaves()) do
          if leaf.path == path then
            value = kinds.show(leaf.raw)
          end
        end
        assert.equal(want, value, stage .. path)
      end
      assert.is_true(stated > 0)
    end)
  end

  it("has such blocks", function() assert.is_true(n >= 5) end)

  it("has command lines that run", function()
    local count = 0
    for line in base.read_file("recipes/README.md"):gmatch("\n    moonreel ([^\n#]+)") do
      local _, err, code = folder.moonreel((line:gsub("RECIPE", "opensora-1.2/stage1")))
      assert.equal(0, code, line .. err)
      count = count + 1
    end
    assert.is_true(count >= 2)
  end)
end)
