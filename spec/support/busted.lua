--- Runs Lua specs inside moonreel: `moonreel spec/support/busted.lua [busted options] FOLDER|FILE
-- ...`. busted itself is Debian's lua-busted; this file only starts it and adds the summary line.
local base, process = require "moonreel.core.base", require "moonreel.core.process"

-- Data that several files of specs share is in this folder; the first that needs it makes it.
-- scripts/test sets one folder for all rooms; otherwise it is removed with this process
-- (summary.lua).
if not os.getenv "MOONREEL_SPEC_SHARED" then
  local place = os.tmpname()
  os.remove(place)
  base.make_dir(place)
  process.set("MOONREEL_SPEC_SHARED", place)
  process.set("MOONREEL_SPEC_OWNER", tostring(base.pid()))
end

table.insert(arg, 1, "--helper=spec/support/summary.lua")
require "busted.runner" { standalone = false, output = "plainTerminal" }
