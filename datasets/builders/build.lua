--- An index of a published data set, from its table and the folder of its clips: `moonreel data
-- ingest` with the columns of a layout.
--   moonreel datasets/builders/build.lua LAYOUT TABLE CLIPS NAME.mrx
local base = require "moonreel.core.base"
local layouts = dofile((arg[0]:gsub("[^/]*$", "")) .. "layouts.lua")

local function fail(form, ...)
  base.raise("MR_E_USAGE", ("build.lua: " .. form):format(...))
end

local names = require("moonreel.recipe.environment").sorted_keys(layouts)
local name, list, clips, output = table.unpack(arg)
local columns = layouts[name or ""]
if name and not columns then
  fail("no layout '%s'; layouts: %s", name, table.concat(names, ", "))
elseif #arg ~= 4 then
  fail("expected LAYOUT TABLE CLIPS NAME.mrx, got %d words; layouts: %s", #arg,
    table.concat(names, ", "))
end
os.exit(require("moonreel.cli.data").run { "ingest", list, "--root", clips, "--columns",
  columns, "--source", name, "-o", output }, true)
