--- An index of a published data set, from its table and the folder of its clips.
--   moonreel datasets/builders/build.lua LAYOUT TABLE CLIPS NAME.mrx
local base = require "moonreel.core.base"
local layouts = dofile((arg[0]:gsub("[^/]*$", "")) .. "layouts.lua")

local function names()
  local list = {}
  for name in pairs(layouts) do
    list[#list + 1] = name
  end
  table.sort(list)
  return table.concat(list, ", ")
end

local name, list, clips, output = table.unpack(arg)
local layout = layouts[name or ""]
if not layout or not output or #arg > 4 then
  base.raise("MR_E_USAGE", ("expected LAYOUT TABLE CLIPS NAME.mrx, got %d words; layouts: %s")
    :format(#arg, names()))
end
local result = require("moonreel.data").ingest(list, output, { root = clips,
  columns = layout.columns, source = name })
print(("%s: %d samples of %s, %d refused with reasons in %s/refused.jsonl, %d without a caption")
  :format(output, result.written, layout.title, result.refused, output, result.without_caption))
for _, note in ipairs(result.notes) do
  print("  " .. note)
end
