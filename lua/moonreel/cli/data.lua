--- moonreel data: build indexes of samples, inspect them, derive new ones from them. A part is the
-- module moonreel.cli.data.<name>, which returns {words, summary, options, overrides, details,
-- run}; there is no list of parts to edit.
-- @module moonreel.cli.data
local base = require "moonreel.core.base"

local command = {
  name = "data",
  summary = "build indexes of clips, inspect, filter, join, merge, split and export them",
  usage = "data PART ... ; moonreel data PART --help",
}

--- One part, as a command of its own, or nil.
---@param name string|nil
---@return table|nil part
function command.part(name)
  if not (name and name:match("^%l+$"))
      or not require("moonreel.app").embedded("lua/moonreel/cli/data/" .. name .. ".lua") then
    return nil
  end
  local part = require("moonreel.cli.data." .. name)
  if not part.name then
    part.name, part.usage = "data " .. name, ("data %s %s"):format(name, part.words)
    part.options = part.options or {}
    table.insert(part.options, { "--json", "print the result as JSON" })
  end
  return part
end

--- All parts, by name.
---@return table[]
function command.parts()
  local parts = {}
  for _, path in ipairs(require("moonreel.app").embedded_list()) do
    parts[#parts + 1] = command.part(path:match("^lua/moonreel/cli/data/(%l+)%.lua$"))
  end
  table.sort(parts, function(a, b) return a.name < b.name end)
  return parts
end

local function usage(text, of)
  base.raise("MR_E_USAGE", ("data: %s; usage: moonreel %s"):format(text, of.usage))
end

local function unknown(name)
  local names = {}
  for i, part in ipairs(command.parts()) do
    names[i] = part.name:match("%l+$")
  end
  local near = require "moonreel.text.nearest"(name, names)
  usage(("'%s' is not a subcommand of 'data'%s; expected one of %s"):format(name,
    near and (", did you mean '" .. near .. "'?") or "", table.concat(names, ", ")), command)
end

-- the words of a part without its options, and the least and the largest number of them
local function words_of(part)
  local words = part.words:gsub(" %[?%-.*$", "")
  local needed = words:gsub("%[[^%]]*%]", "")
  local function count(text) return select(2, text:gsub("[^%s.]%S*", "")) end
  return words, count(needed), words:match("%.%.%.") and math.huge or count(words)
end

---@param args string[]
---@return integer exit code
function command.run(args)
  local part = command.part(args[1])
  if not args[1] then
    usage("nothing to do", command)
  elseif args[1]:match("^%-") then
    usage(args[1] .. ": expected a subcommand before its options", command)
  elseif not part then
    unknown(args[1])
  end
  local parsed = require("moonreel.settings.words").parse(table.move(args, 2, #args, 1, {}), part)
  parsed.args = args
  local words, least, most = words_of(part)
  local n = #parsed.positional
  if n < least or n > most then
    usage(("%s: expected %s, got %s"):format(args[1], words, n == 0 and "nothing"
      or "'" .. table.concat(parsed.positional, " ") .. "'"), part)
  end
  if part.output and not parsed.options.output then
    usage(args[1] .. ": no output given (-o)", part)
  end
  return part.run(parsed.options, parsed, table.unpack(parsed.positional))
end

return command
