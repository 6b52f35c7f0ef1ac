--- `moonreel -n N WORDS`: the same words by N ranks of this host, ended together.
-- @module moonreel.cli.ranks
local failure = require "moonreel.cli.failure"
local place = require "moonreel.comm.place"

local ranks = {}

--- Run words by so many ranks of this host.
---@param words string[]
---@param count integer
---@param options table|nil  as of moonreel.comm.launch
---@return integer exit code
function ranks.launch(words, count, options)
  options = options or {}
  options.say = function(line) failure.report { message = line } end
  local launch = require("moonreel.comm.launch").run
  local ok, code, text = xpcall(launch, failure.handler, words, count, options)
  if not ok then
    return failure.report(code)
  end
  if text then
    failure.report { message = text .. ("; all %d ranks have ended"):format(count) }
  end
  return code
end

---@param args string[]  {"-n", N, FILE.lua | -e CODE | COMMAND, ...}
---@return integer exit code
function ranks.run(args)
  local text = args[2] or ""
  local count = text:match "^%d+$" and math.tointeger(tonumber(text))
  if not count or count < 1 or not args[3] or args[3] == "-n" then
    return failure.report { exit = 2, message = ("-n %s: expected a whole number of ranks and what "
      .. "each runs; try: moonreel -n 2 FILE.lua"):format(text) }
  end
  -- each rank would start a world of its own, whose ranks know nothing of the others
  local by, rank, size = place.of_several()
  if by then
    return failure.report { exit = 2, message = ("-n %d: this process is rank %d of %d already, by "
      .. "%s; try: without -n, or all ranks by -n alone"):format(count, rank, size, by) }
  end
  return ranks.launch(table.move(args, 3, #args, 1, {}), count)
end

return ranks
