--- busted helper: after all specs one line `N passed, N failed` (a spec that raises outside `it`
-- counts as failed).
local base = require "moonreel.core.base"
local busted = require "busted"
local passed, failed = 0, 0

busted.subscribe({ "test", "end" }, function(_, _, status)
  if status == "success" then
    passed = passed + 1
  elseif status ~= "pending" then
    failed = failed + 1
  end
  return nil, true
end)

busted.subscribe({ "error" }, function(element)
  if element.descriptor ~= "it" then
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
