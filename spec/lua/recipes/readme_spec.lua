--- Every recipe in recipes/README.md bakes and gives what its lines `--> path = value` say.
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
    it(("block %d gives what it says"):format(place), function()
      -- as a user's own file: in a child process
      local s = settings.bake(dir:write(("block%d.lua"):format(place), block))
      local leaves = {}
      for _, leaf in ipairs(s:leaves()) do leaves[leaf.path] = leaf end
      local stated = 0
      for path, want in block:gmatch("%-%-> (%S+) = ([^\n]+)") do
        stated = stated + 1
        assert.equal(want, leaves[path] and kinds.show(leaves[path].raw) or "absent", path)
      end
      assert.is_true(stated > 0)
    end)
  end

  it("has such blocks", function() assert.is_true(n >= 5) end)
end)
