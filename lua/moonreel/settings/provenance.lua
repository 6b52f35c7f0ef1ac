--- Shows where values of settings come from: what set each value, what it replaced, what follows
-- from it.
-- @module moonreel.settings.provenance
local fault = require "moonreel.recipe.fault"
local override = require "moonreel.recipe.override"
local registry = require "moonreel.recipe.registry"
local printer = require "moonreel.text.table"

local provenance = {}

-- paths whose values were computed from `path`
local function readers_of(settings, path)
  local out = {}
  for _, leaf in ipairs(settings:leaves()) do
    local follows = false
    for _, link in ipairs(leaf.chain) do
      -- a plain value replaces a computed one; a computed value may use it
      follows = follows and link.reads ~= nil
      for _, read in ipairs(link.reads or {}) do
        follows = follows or read == path or path:sub(1, #read + 1) == read .. "."
      end
    end
    if follows and leaf.path ~= path then
      out[#out + 1] = leaf.path
    end
  end
  return out
end

-- The leaf of a key, or all leaves below it; if there are none, entries that were removed.
local function leaves_at(settings, key)
  local target, problem = override.target(key)
  if not target then
    fault.usage("why: %s", problem)
  end
  local path = registry.path(target.keys)
  local out = {}
  for _, list in ipairs { settings:leaves(), settings:removed() } do
    for _, leaf in ipairs(list) do
      if leaf.path == path or leaf.path:sub(1, #path + 1) == path .. "." then
        out[#out + 1] = leaf
      end
    end
  end
  if #out == 0 then
    fault.usage("why: %s: the recipe has no such entry, and never had one", path)
  end
  return out
end

provenance.columns = { { key = "field" }, { key = "value", format = printer.short },
  { key = "set_by", title = "set by" },
  { key = "replaced", format = printer.short }, { key = "from", title = "computed from" },
    { key = "followers", title = "what follows" } }

--- The origin of the value of a key, or of every value below it: one row per link, oldest first.
---@param settings table
---@param key string
---@param whole boolean|nil  name the field in every row
---@return table[]
function provenance.rows(settings, key, whole)
  local rows = {}
  for _, leaf in ipairs(leaves_at(settings, key)) do
    for i, link in ipairs(leaf.chain) do
      rows[#rows + 1] = { field = (i == 1 or whole) and leaf.path or "",
        set_by = link.at, value = link.value,
        replaced = i > 1 and leaf.chain[i - 1].value or nil, from = link.reads
          and table.concat(link.reads, ", ") or nil }
    end
    local followers = readers_of(settings, leaf.path)
    if #followers > 0 and #rows > 0 then
      rows[#rows].followers = table.concat(followers, ", ")
    end
  end
  return rows
end

return provenance
