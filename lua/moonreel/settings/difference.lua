--- Finds the differences between two settings, and decides how a resume treats each.
-- @module moonreel.settings.difference
local kinds = require "moonreel.recipe.kinds"

--- Leaves whose values differ, in the order of paths.
---@param was table   settings, for example of a checkpoint
---@param now table   settings
---@return table[] rows  {path, was = text | nil, now = text | nil, at = place that set the present
---   value, and from its field: resume = free | warn | refuse, position, affects}
return function(was, now)
  local old, rows, seen = {}, {}, {}
  for _, leaf in ipairs(was:leaves()) do
    old[leaf.path] = leaf
  end
  local function compare(path, a, b)
    local a_text, b_text = a and kinds.show(a.raw), b and kinds.show(b.raw)
    if a_text == b_text then
      return
    end
    local link = b and b.chain[#b.chain]
    local field = (b or a).row
    rows[#rows + 1] = { path = path, was = a_text, now = b_text, resume = field.resume,
      position = field.position, affects = field.affects,
      at = link and link.at or "default" }
  end
  for _, leaf in ipairs(now:leaves()) do
    seen[leaf.path] = true
    compare(leaf.path, old[leaf.path], leaf)
  end
  for path, leaf in pairs(old) do
    if not seen[path] then
      compare(path, leaf, nil)
    end
  end
  table.sort(rows, function(a, b) return a.path < b.path end)
  return rows
end
