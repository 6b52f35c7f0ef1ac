--- Every source file has a spec: at the mirrored path (core/data/order.c: spec/core/data/order.c;
-- lua/moonreel/text/table.lua: spec/lua/text/table_spec.lua), or one whose head says `Covers:` and
-- names it. A star stands for any name, and so does NAME: a star behind a slash would open a
-- comment in C.
local base = require "moonreel.core.base"
local files = require("spec.support.sources").files

-- paths that a spec's head comment names after `Covers:`
local function named(path)
  local text, list = base.read_file(path), {}
  local head = text:match("^%s*(/%*.-%*/)") or text:match("^((%-%-[^\n]*\n)+)")
    or text:match("^%-%-.-\n%f[^%-\n]") or ""
  local rest = head:match("Covers:(.*)") or ""
  for word in rest:gmatch("[%w_./*]+%.%a+") do
    list[#list + 1] = word
  end
  return list
end

local specs = files("spec/core", "%.c$")
for _, path in ipairs(files("spec/lua", "_spec%.lua$")) do
  specs[#specs + 1] = path
end
local sources = files("core", "%.c$")
for _, room in ipairs { "lua/moonreel", "spec/golden/runner" } do
  for _, path in ipairs(files(room, "%.lua$")) do
    sources[#sources + 1] = path
  end
end

local function mirrored(path)
  local lua = path:match("^lua/moonreel/(.*)%.lua$")
  return lua and "spec/lua/" .. lua .. "_spec.lua" or "spec/" .. path
end

describe("a source file", function()
  local patterns = {}
  for _, spec in ipairs(specs) do
    for _, word in ipairs(named(spec)) do
      patterns[#patterns + 1] = { spec = spec, word = word,
        pattern = "^" .. word:gsub("NAME", "*"):gsub("[%.%-]", "%%%0"):gsub("%*", "[^/]*")
          .. "$" }
    end
  end

  it("has a spec of its own, or one that says it covers it", function()
    local without = {}
    for _, path in ipairs(sources) do
      local found = base.exists(mirrored(path))
      for _, p in ipairs(patterns) do
        found = found or path:match(p.pattern) ~= nil
      end
      if not found then
        without[#without + 1] = path
      end
    end
    assert.same({}, without)
  end)

  it("is there where a spec says it covers it", function()
    local gone = {}
    for _, p in ipairs(patterns) do
      -- a header that holds formulas of its own may be named too
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
