--- Which specs cover a source file: the one at the mirrored path (core/data/order.c:
-- spec/core/data/order.c; lua/moonreel/text/table.lua: spec/lua/text/table_spec.lua), and those
-- whose head says `Covers:` and names it. A star stands for any name, and so does NAME, because a
-- star after a slash would open a comment in C. A name without a folder has that of the one before
-- it.
local base = require "moonreel.core.base"
local files = require("spec.support.sources").files

local covers = {}

--- The path of a source's own spec.
---@param path string
---@return string
function covers.mirrored(path)
  local lua = path:match("^lua/moonreel/(.*)%.lua$")
  return lua and "spec/lua/" .. lua .. "_spec.lua" or "spec/" .. path
end

-- paths that a spec's head comment names after `Covers:`
local function named(path)
  local text, list, folder = base.read_file(path), {}, ""
  local head = text:match("^%s*(/%*.-%*/)") or text:match("^((%-%-[^\n]*\n)+)")
    or text:match("^%-%-.-\n%f[^%-\n]") or ""
  for word in (head:match("Covers:(.*)") or ""):gmatch("[%w_./*]+%.%a+") do
    folder = word:match "^.*/" or folder
    list[#list + 1] = word:find "/" and word or folder .. word
  end
  return list
end

--- The sources that all specs cover.
---@return table[]  {spec: its path, word: the name in its head, pattern: of paths}
function covers.read()
  local list = {}
  local specs = files("spec/lua", "_spec%.lua$", files("spec/cuda", "%.cp*$",
    files("spec/core", "%.c$")))
  for _, spec in ipairs(specs) do
    for _, word in ipairs(named(spec)) do
      list[#list + 1] = { spec = spec, word = word, pattern = "^"
        .. word:gsub("NAME", "*"):gsub("[%.%-]", "%%%0"):gsub("%*", "[^/]*") .. "$" }
    end
  end
  return list
end

--- Specs of a source: its own, then those that cover it.
---@param path string
---@param said table[]  of covers.read
---@return string[]  paths
function covers.specs(path, said)
  local own = covers.mirrored(path)
  local list = { base.exists(own) and own or nil }
  for _, p in ipairs(said) do
    if path:match(p.pattern) and p.spec ~= list[#list] and p.spec ~= own then
      list[#list + 1] = p.spec
    end
  end
  return list
end

return covers
