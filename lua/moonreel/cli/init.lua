--- The command line: finds the command and hands over.
-- @module moonreel.cli
local cli = {}

function cli.main(args)
  print("moonreel", args[1])
  return 0
end

return cli
