--- Refuses settings that this version does not read: before a run starts, it names every value that
-- would be ignored.
-- @module moonreel.settings.readers
local fault = require "moonreel.recipe.fault"
local kinds = require "moonreel.recipe.kinds"
local peers = require "moonreel.recipe.peers"
local registry = require "moonreel.recipe.registry"

local readers = {}

-- Does a value need a reader? A value that is off, or the default, does not.
local function asks(value, default)
  return value ~= nil and value ~= false and value ~= default
    and not (type(value) == "table" and next(value) == nil)
end

--- Fields that are set and have no reader: {{path, value, at, what}, ...}.
---@param settings table
---@return table[]
function readers.missing(settings)
  local missing = {}
  for _, leaf in ipairs(settings:leaves()) do
    local what
    local row, link = leaf.row, leaf.chain[#leaf.chain]
    if leaf.path:match("%.type$") then
      local record = registry.get().root.fields[leaf.path:match("^(.*)%.type$")]
      local of_type = record and record.types and record.types[leaf.value]
      if of_type and (of_type.reader == false or of_type.reader == "plan") then
        what = ("%s %s"):format(leaf.path:match("^(.*)%.type$"), leaf.value)
      end
    elseif row.reader == false and link and link.set and not row.no_meaning
        and asks(leaf.value, row.default) then
      what = leaf.path
    end
    if what then
      missing[#missing + 1] = { path = leaf.path, value = leaf.value, what = what,
        at = link and link.at or "default" }
    end
  end
  return missing
end

--- Raises an error that names all such fields, if there are any.
---@param record string|nil  only fields below this record
function readers.check(settings, record)
  local lines = {}
  for _, one in ipairs(readers.missing(settings)) do
    if not record or one.path:sub(1, #record + 1) == record .. "." then
      local instead = peers.answer(one.path)
      lines[#lines + 1] = ("%s: %s = %s: this version has no reader for %s%s"):format(one.at,
        one.path, kinds.show(one.value), one.what, instead and "; " .. instead or "")
    end
  end
  if #lines == 0 then
    return
  end
  lines[#lines + 1] = "  try: moonreel show, which needs no readers; or leave these fields out"
  fault.recipe("%s", table.concat(lines, "\n"))
end

return readers
