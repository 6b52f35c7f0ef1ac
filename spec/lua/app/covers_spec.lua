--- Each source file has a spec, at the mirrored path or with its name after `Covers:` in the head
-- (spec/support/covers.lua).
local base = require "moonreel.core.base"
local covers = require "spec.support.covers"
local files = require("spec.support.sources").files

local sources = files("core", "%.c$")
for _, room in ipairs { "lua/moonreel", "spec/golden/runner" } do
  files(room, "%.lua$", sources)
end

describe("a source file", function()
  local said = covers.read()

  it("has a spec at the mirrored path, or one that covers it", function()
    local without = {}
    for _, path in ipairs(sources) do
      if #covers.specs(path, said) == 0 then
        without[#without + 1] = path
      end
    end
    assert.same({}, without)
  end)

  it("exists when a spec says that it covers it", function()
    files("cuda", "%.%a+$", sources)
    local gone = {}
    for _, p in ipairs(said) do
      -- a header with formulas of its own may be named, too
      local found = base.exists(p.word)
      for _, path in ipairs(sources) do
        found = found or path:match(p.pattern) ~= nil
      end
      if not found then
        gone[#gone + 1] = p.spec .. ": " .. p.word
      end
    end
    assert.same({}, gone)
  end)
end)
