--- `moonreel -n N WORDS`: runs the same command on N ranks of this host, ended together; with
-- `--hostfile FILE` on ranks of several hosts.
-- @module moonreel.cli.ranks
local failure = require "moonreel.cli.failure"
local place = require "moonreel.comm.place"

local ranks = {}

--- Runs words with `count` ranks on this host.
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

-- options in front of the command that each rank runs
local OPTIONS = { ["-n"] = "count", ["--hostfile"] = "hostfile", ["--include"] = "include",
  ["--exclude"] = "exclude" }

--- Does a command line begin with one of these options?
---@param word string|nil
function ranks.is_option(word) return OPTIONS[word] ~= nil end

-- Parses {count, hostfile, include, exclude} and the words after them; or returns nil and the
-- error.
local function parse(args)
  local o, i = {}, 1
  while OPTIONS[args[i]] do
    local name, value = OPTIONS[args[i]], args[i + 1]
    local count = name == "count" and (value or ""):match "^%d+$" and math.tointeger(value)
    if o[name] then
      return nil, args[i] .. " is given twice"
    elseif name == "count" and (not count or count < 1) then
      return nil, ("-n %s: expected a whole number of ranks and the command that each rank "
        .. "runs"):format(value or "")
    elseif not value then
      return nil, args[i] .. ": expected a value and the command that each rank runs"
    end
    o[name], i = count or value, i + 2
  end
  if not args[i] then
    return nil, ("%s %s: expected the command that each rank runs"):format(args[i - 2], args[i - 1])
  elseif not o.hostfile and (o.include or o.exclude) then
    return nil, "--include and --exclude need --hostfile, whose hosts they choose from"
  end
  return o, table.move(args, i, #args, 1, {})
end

---@param args string[]  {"-n", N, "--hostfile", FILE, FILE.lua | -e CODE | COMMAND, ...}
---@return integer exit code
function ranks.run(args)
  local o, words = parse(args)
  if not o then
    return failure.report { exit = 2, message = words .. "; try: moonreel -n 2 FILE.lua" }
  end
  local given = o.hostfile and "--hostfile " .. o.hostfile or ("-n %d"):format(o.count)
  -- otherwise each rank would start a world of its own, unknown to the others
  local by, rank, size = place.of_several()
  if by then
    return failure.report { exit = 2, message = ("%s: this process is already rank %d of %d, "
      .. "started by %s; try: leave out %s, or start all ranks with %s alone"):format(given, rank,
      size, by,
      given:match "%S+", given:match "%S+") }
  elseif not o.hostfile then
    return ranks.launch(words, o.count)
  end
  local ok, code = xpcall(require("moonreel.cluster.launch").run, failure.handler, words,
    { hostfile = o.hostfile, include = o.include, exclude = o.exclude, ranks = o.count })
  return ok and code or failure.report(code)
end

return ranks
