--- docs/plan.md: its commands are commands.
local base = require "moonreel.core.base"
local command = require "moonreel.cli.plan"
local words = require "moonreel.settings.words"

describe("docs/plan.md", function()
  it("names only words that the command takes", function()
    local seen = 0
    for line in base.read_file("docs/plan.md"):gmatch("moonreel plan ([^\n`]+)") do
      local list = {}
      for word in line:gmatch("%S+") do
        list[#list + 1] = word
      end
      assert.has_no.errors(function() words.parse(list, command) end, line)
      seen = seen + 1
    end
    assert.is_true(seen >= 7, seen)
  end)
end)
