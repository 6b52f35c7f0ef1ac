--- Clips of an index against their files: are they there, are they those of the index, do they
-- decode?
-- @module moonreel.data.examine
local base = require "moonreel.core.base"
local data = require "moonreel.data"

local examine = {}

-- what decoded frames are scaled to: small, they are thrown away
local SIDE = 32

-- failures tell their class behind the path
local function class_of(problem, file)
  local text = tostring(problem)
  local behind = select(2, text:find(file .. ": ", 1, true))
  local class = behind and text:match("^([%l_]+): ", behind + 1)
  return class or (problem.code == "MR_E_IO" and "io") or "open", text
end

--- What is wrong with the file of a row.
---@param row table       of an index
---@param decode? boolean  decode every frame, instead of reading packet headers alone
---@return string|nil class  as in quarantine.jsonl, "gone" for a file that is not there; nil: good
---@return string|nil detail
function examine.row(row, decode)
  if not base.exists(row.file) then
    return "gone", row.file .. ": is not there"
  end
  local ok, facts, decoded = pcall(decode and data.decode or data.scan, row.file,
    decode and { height = SIDE, width = SIDE } or nil)
  if not ok then
    if type(facts) == "table" and (facts.code == "MR_E_STOPPED" or facts.code == "MR_E_MEMORY") then
      error(facts, 0)
    end
    return class_of(facts, row.file)
  end
  facts = decoded or facts
  for _, field in ipairs { "bytes", "frames", "width", "height" } do
    if facts[field] ~= row[field] then
      return "stale", ("%s: %s is %d, the index says %d"):format(row.file, field, facts[field],
        row[field])
    end
  end
  return nil
end

return examine
