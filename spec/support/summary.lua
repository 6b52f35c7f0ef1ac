--- busted helper: prints one line `N passed, N failed` after all specs (a spec that raises outside
-- `it` counts as failed). If MOONREEL_SPEC_ENDS names a file, each spec appends a line to it at
-- its end: verdict (+, -), seconds, place and name. scripts/test counts these lines when a process
-- dies.
local base = require "moonreel.core.base"
local busted = require "busted"
local passed, failed = 0, 0

local place = os.getenv "MOONREEL_SPEC_ENDS"
local ends = place and assert(io.open(place, "a"))

busted.subscribe({ "test", "end" }, function(element, _, status)
  if ends and status ~= "pending" then
    ends:write(("%s %.2f %s:%d %s\n"):format(status == "success" and "+" or "-",
      element.duration or 0, element.trace.short_src, element.trace.currentline,
      (element.name:gsub("%s+", " "))))
    ends:flush()
  end
  if status == "success" then
    passed = passed + 1
  elseif status ~= "pending" then
    failed = failed + 1
  end
  return nil, true
end)

busted.subscribe({ "error" }, function(element)
  if element.descriptor ~= "it" then
    if ends then
      ends:write(("- 0 %s raised outside its specs\n"):format(element.name))
      ends:flush()
    end
    failed = failed + 1
  end
  return nil, true
end)

busted.subscribe({ "exit" }, function()
  print(("%d passed, %d failed"):format(passed, failed))
  if os.getenv "MOONREEL_SPEC_OWNER" == tostring(base.pid()) then
    os.execute("rm -rf '" .. os.getenv "MOONREEL_SPEC_SHARED" .. "'")
  end
  return nil, true
end)
