--- Runs Lua specs inside moonreel: `moonreel spec/support/busted.lua [busted options] FOLDER|FILE
-- ...`. busted itself is Debian's lua-busted; this file only starts it and adds the summary line.
table.insert(arg, 1, "--helper=spec/support/summary.lua")
require "busted.runner" { standalone = false, output = "plainTerminal" }
