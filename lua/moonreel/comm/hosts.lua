--- Host lists: files in the four usual formats, lists of Slurm, and filters.
--
--     node1                      # one name per line (Colossal-AI)
--     node2 slots=4              # DeepSpeed, Open MPI: also max_slots=8, `slots = 4`, ^node9
--     node3:4                    # MPICH: also binding=..., ifname=...
--     node[04-07,9] slots=8      # Slurm
--     root@[fe80::1] port=2222 addr=[fd00::9]
--
-- @module moonreel.comm.hosts
local base = require "moonreel.core.base"

local hosts = {}

local NAME_BYTES, MOST, LINE_BYTES, FILE_BYTES = 253, 65536, 4096, 32 << 20
local KEYS = { slots = true, max_slots = true, port = true, addr = true }
local PASSED_OVER = { binding = true, ifname = true }

---@class moonreel.comm.Host
---@field name string          as written, without brackets and user
---@field user string|nil       user of its remote shell
---@field slots integer|nil    its number of ranks; nil: unknown
---@field max_slots integer|nil
---@field port integer|nil     port of its remote shell
---@field addr string|nil      its address for other hosts, if the name is one of another network
---@field devices integer[]|nil  the slots to use, from 0; nil: from the first on
---@field line integer

local function refuse(where, form, ...)
  base.raise("MR_E_USAGE", where .. ": " .. form:format(...))
end

-- an error contains no control characters, and not all of a long line
local function shown(text)
  text = base.printable(text)
  return #text > 60 and text:sub(1, 60) .. "..." or text
end

local function check_name(name, where)
  if #name > NAME_BYTES then
    refuse(where, "a host name of %d bytes; expected at most %d", #name, NAME_BYTES)
  elseif not name:match("^[%w._:][%w._:-]*$") then
    refuse(where, "'%s' is not a host name; expected letters, digits, '.', '_', ':' and '-', not "
      .. "'-' first", shown(name))
  end
  return name
end

local function whole(text, what, where, most)
  local n = #text <= 9 and text:match("^%d+$") and math.tointeger(tonumber(text))
  if not n or n < 1 or n > most then
    refuse(where, "%s=%s; expected a whole number from 1 to %d", what, shown(text), most)
  end
  return n
end

-- ---- Slurm ----

-- "01-03,7" after a prefix: names with the digits as written
local function each_of(ranges, where, add)
  for range in (ranges .. ","):gmatch("([^,]*),") do
    local from, to = range:match("^(%d+)%-(%d+)$")
    from = from or range:match("^%d+$")
    to = to or from
    if not from or #from > 9 or #to > 9 or tonumber(to) < tonumber(from) then
      refuse(where, "'[%s]' is not a list of numbers; expected [1-4,07]", shown(ranges))
    end
    for n = tonumber(from), tonumber(to) do
      add((("%%0%dd"):format(#from)):format(n))
    end
  end
end

local function expand_name(text, where, names)
  local prefix, ranges, rest = text:match("^([^%[]*)%[([%d,%-]+)%](.*)$")
  if #names >= MOST then
    refuse(where, "more than %d hosts", MOST)
  elseif not prefix then
    names[#names + 1] = check_name(text, where)
    return
  end
  each_of(ranges, where, function(digits) expand_name(prefix .. digits .. rest, where, names) end)
end

--- The names of a list "node[01-03,7],login2".
---@param text string
---@param where string|nil  the beginning of errors
---@return string[]
function hosts.expand(text, where)
  local names, depth, start = {}, 0, 1
  where = where or "list of hosts"
  for i = 1, #text + 1 do
    local c = i <= #text and text:sub(i, i) or ","
    depth = depth + (c == "[" and 1 or c == "]" and -1 or 0)
    if c == "," and (depth == 0 or i > #text) then
      expand_name(text:sub(start, i - 1), where, names)
      start = i + 1
    end
  end
  return names
end

--- Ranks of each host from "8(x3),4".
---@param text string
---@return integer[]
function hosts.tasks(text)
  local list, where = {}, "SLURM_TASKS_PER_NODE"
  for part in (text .. ","):gmatch("([^,]*),") do
    local n, times = part:match("^(%d+)%(x(%d+)%)$")
    n = whole(n or part, "tasks", where, 65535)
    for _ = 1, times and whole(times, "times", where, MOST) or 1 do
      list[#list + 1] = n
    end
  end
  return list
end

-- ---- files ----

-- the part before the keys: names, and the slots of `host:4`
local function names_of(word, where)
  local six, slots = word:match("^%[([%x:.%%]*:[%x:.%%]*)%](.*)$")
  if six then
    slots = slots ~= "" and (slots:match("^:(%d+)$")
      or refuse(where, "'%s' after an address; expected :SLOTS", shown(slots))) or nil
    return { check_name(six, where) }, slots
  end
  local name, count = word:match("^([^:]+):(%d+)$")
  return hosts.expand(name or word, where), count
end

local function keys_of(rest, where)
  local keys = {}
  for key, value in rest:gsub("%s*=%s*", "="):gmatch("([^%s=]+)(=?%S*)") do
    local name = key:gsub("-", "_")
    if value == "" or not (KEYS[name] or PASSED_OVER[name]) then
      refuse(where, "'%s'; expected slots=N, max_slots=N, port=P or addr=IP; try: a # before a "
        .. "comment", shown(key .. value))
    elseif keys[name] then
      refuse(where, "%s is given twice", name)
    end
    keys[name] = value:sub(2)
  end
  return keys
end

local function entry_of(keys, line, where)
  local addr = keys.addr and (keys.addr:match("^%[([%x:.]+)%]$") or keys.addr)
  local entry = { line = line, addr = addr and check_name(addr, where) }
  entry.slots = keys.slots and whole(keys.slots, "slots", where, 65535)
  entry.max_slots = keys.max_slots and whole(keys.max_slots, "max_slots", where, 65535)
  entry.port = keys.port and whole(keys.port, "port", where, 65535)
  if (entry.slots or 0) > (entry.max_slots or math.huge) then
    refuse(where, "slots=%d, max_slots=%d: expected slots of at most max_slots", entry.slots,
      entry.max_slots)
  end
  return entry
end

-- a host on two lines: slots on both are added, otherwise it is an error
local function merge(old, new, name, where)
  if not (old.slots and new.slots) then
    refuse(where, "host '%s' is already on line %d; try: slots=N on both lines, which are added",
      name, old.line)
  end
  old.slots = old.slots + new.slots
  old.max_slots = new.max_slots or old.max_slots
end

local function add_line(list, known, text, line, where)
  local word, rest = text:match("^(%S+)%s*(.*)$")
  if word:match("^%+") then
    refuse(where, "'%s' refers to hosts of a resource manager by number; expected names of hosts",
      shown(word))
  end
  local without = word:match("^%^(.+)$")
  local user, login = (without or word):match("^([%w_][%w._-]*)@(.+)$")
  local names, count = names_of(login or without or word, where)
  local keys = keys_of(rest, where)
  if count and keys.slots then
    refuse(where, "slots are given twice: :%s and slots=%s", shown(count), shown(keys.slots))
  end
  keys.slots = keys.slots or count
  for _, name in ipairs(names) do
    local entry = entry_of(keys, line, where)
    entry.name, entry.user = name, user
    if without then
      known[name] = known[name] or { line = line }
      known[name].without = true
    elseif known[name] and known[name].name then
      merge(known[name], entry, name, where)
    elseif #list >= MOST then
      refuse(where, "more than %d hosts", MOST)
    else
      entry.without = known[name] and known[name].without
      list[#list + 1], known[name] = entry, entry
    end
  end
end

--- The hosts of a file's text, in its order.
---@param text string
---@param name string  name of the file, for errors
---@return moonreel.comm.Host[]
function hosts.parse(text, name)
  local all, known, list, line = {}, {}, {}, 0
  -- the mark with which editors on Windows begin a file
  text = text:gsub("^\xEF\xBB\xBF", "")
  for row in (text .. "\n"):gmatch("(.-)\r?\n") do
    line = line + 1
    local where = ("%s:%d"):format(name, line)
    if #row > LINE_BYTES then
      refuse(where, "a line of %d bytes; expected at most %d", #row, LINE_BYTES)
    end
    local words = row:gsub("#.*", ""):match("^%s*(.-)%s*$")
    if words ~= "" then
      add_line(all, known, words, line, where)
    end
  end
  for _, host in ipairs(all) do
    if not host.without then
      list[#list + 1] = host
    end
  end
  if #list == 0 then
    base.raise("MR_E_USAGE", name .. ": there are no hosts; expected one per line, as in: node1 "
      .. "slots=8")
  end
  return list
end

--- The hosts of a file.
---@param path string
---@return moonreel.comm.Host[]
function hosts.read(path)
  local good, text = pcall(base.read_file, path)
  if not good then
    base.raise("MR_E_USAGE", ("host file %s cannot be read: %s"):format(path, text.message))
  elseif #text > FILE_BYTES then
    base.raise("MR_E_USAGE", ("host file %s: %d bytes; expected at most %d"):format(path, #text,
      FILE_BYTES))
  end
  return hosts.parse(text, path)
end

-- ---- filters ----

-- "0,2" after a name
local function slots_of(text, name, option)
  local list, seen = {}, {}
  for digits in (text .. ","):gmatch("([^,]*),") do
    local n = #digits < 6 and math.tointeger(tonumber(digits))
    if not n then
      refuse(option, "'%s' is not a slot of host '%s'; expected numbers, as in %s:0,2", shown(
        digits),
        name, name)
    elseif seen[n] then
      refuse(option, "slot %d of host '%s' is given twice", n, name)
    end
    seen[n], list[#list + 1] = true, n
  end
  return list
end

-- "a,b" or "a:0,2@b" -> {name = slots or true}, in the order given
local function parse_filter(text, option)
  local wanted, order = {}, {}
  local function add(name, slots)
    check_name(name, option)
    if wanted[name] then
      refuse(option, "host '%s' is given twice", name)
    end
    wanted[name], order[#order + 1] = slots, name
  end
  local by_slot = text:find("[@:]")
  for part in text:gsub("@", "\n"):gsub("$", "\n"):gmatch("(.-)\n") do
    local name, slots = part:match("^([^:]+):([%d,]*)$")
    if name then
      add(name, slots_of(slots, name, option))
    elseif by_slot then
      add(part, true)
    else
      for _, one in ipairs(hosts.expand(part, option)) do
        add(one, true)
      end
    end
  end
  return wanted, order
end

local function slots_within(host, list, option)
  for _, n in ipairs(list) do
    if host.slots and n >= host.slots then
      refuse(option, "there is no slot %d on host '%s'; it has %d slots, counted from 0", n,
        host.name,
        host.slots)
    end
  end
end

local function without_slots(host, list)
  if not host.slots then
    refuse("--exclude", "cannot exclude slots of host '%s', because its number of slots is "
      .. "unknown; try: slots=N on its line", host.name)
  end
  local gone, devices = {}, {}
  for _, n in ipairs(list) do
    gone[n] = true
  end
  for n = 0, host.slots - 1 do
    if not gone[n] then
      devices[#devices + 1] = n
    end
  end
  return devices
end

--- Filters hosts: `include` names those that stay, `exclude` those that do not, as "a,b" or, with
-- slots, "a:0,2@b".
---@param list moonreel.comm.Host[]
---@param include string|nil
---@param exclude string|nil
---@return moonreel.comm.Host[]
function hosts.filter(list, include, exclude)
  if include and exclude then
    base.raise("MR_E_USAGE", "--include and --exclude: expected only one of the two")
  elseif not (include or exclude) then
    return list
  end
  local option = include and "--include" or "--exclude"
  local wanted, order = parse_filter(include or exclude, option)
  local by_name, left = {}, {}
  for _, host in ipairs(list) do
    by_name[host.name] = host
  end
  for _, name in ipairs(order) do
    local names = {}
    for _, host in ipairs(list) do
      names[#names + 1] = host.name
    end
    local near = not by_name[name] and base.nearest(name, names)
    if not by_name[name] then
      refuse(option, "host '%s' is not in the list%s", name,
        near and (", did you mean '" .. near .. "'?") or "")
    elseif wanted[name] ~= true then
      slots_within(by_name[name], wanted[name], option)
    end
  end
  for _, host in ipairs(list) do
    local slots = wanted[host.name]
    local devices = type(slots) == "table" and (include and slots or without_slots(host, slots))
    if devices and #devices > 0 then
      host = setmetatable({ devices = devices, slots = #devices }, { __index = host })
    end
    if include and slots or exclude and (not slots or devices and #devices > 0) then
      left[#left + 1] = host
    end
  end
  if #left == 0 then
    refuse(option, "leaves no host; expected at least one")
  end
  return left
end

return hosts
