--- Parses a command line into options of the command, fields of the recipe and other words. Ref:
-- recipes.md 7. A command declares rows {"--name", help}, {"--name FILE", help} or {"-n, --name
-- N", help}. Keys of a row: `many = true` collects values; `least = N` asks for a whole number of
-- at least N; `takes = function(word, parsed)` says which further words belong to the value of the
-- option: they are collected, too, or are appended with a space; `further = N` asks for N more
-- words; `empty = true` accepts '' as a value. A row that does not begin with `-` is only help,
-- and so are the rows of `fields`. With `overrides = true` the command takes a recipe: then every
-- field of the registry is an option as well; `short_fields` = {n = "path"} gives some of them a
-- letter. `most` = N refuses further words that are neither options nor fields. `questions` =
-- {{NAME, "NAME NAME"}, ...} lists options that answer alone, and the options that each may be
-- combined with: the first one that is given is answered, and other options are refused.
-- Abbreviations do not exist.
-- @module moonreel.settings.words
local fault = require "moonreel.recipe.fault"

local words = {}

local booleans = { ["true"] = true, ["1"] = true, ["false"] = false, ["0"] = false }

--- The options among a command's rows.
---@param rows table[]|nil
---@return table[]  {name, with dashes; short, value, many, least, takes, further, empty}
function words.rows(rows)
  local out = {}
  for _, row in ipairs(rows or {}) do
    local short, rest = row[1]:match("^%-(%a), (.*)$")
    local name, value = (rest or row[1]):match("^%-%-([%w_-]+)%s*(.*)$")
    if name then
      out[#out + 1] = { name = name:gsub("_", "-"), short = short,
        value = value ~= "" and value or nil, many = row.many,
        least = row.least, takes = row.takes, further = row.further, empty = row.empty }
    end
  end
  return out
end

local function find(rows, name)
  name = name:gsub("_", "-")
  for _, row in ipairs(rows) do
    if row.name == name then
      return row
    end
  end
end

local function unknown(command, name, problem)
  local names = {}
  for _, row in ipairs(words.rows(command.options)) do
    names[#names + 1] = row.name
  end
  local near = require("moonreel.text.nearest")(name:gsub("_", "-"), names)
  if near then
    problem = ("no such option, did you mean '--%s'?"):format(near)
  end
  fault.usage("%s: --%s: %s", command.name, name,
    problem or ("no such option; try: moonreel " .. command.name .. " --help"))
end

-- refuses options that the question would ignore
local function refuse_aside(command, options)
  for _, question in ipairs(command.questions or {}) do
    local asked, takes = table.unpack(question)
    for _, row in ipairs(options[asked] and words.rows(command.options) or {}) do
      local name = row.name
      local goes = name == asked or (" " .. takes .. " "):find(" " .. name .. " ", 1, true)
      if options[name:gsub("-", "_")] and not goes then
        fault.usage("%s: --%s cannot be combined with --%s, which allows %s; try: one command "
          .. "after the other",
          command.name, name, asked, takes == "" and "no other"
            or "--" .. takes:gsub(" ", ", --"))
      end
    end
    if options[asked] then
      return
    end
  end
end

--- Splits the words of a command.
---@param args string[]
---@param command table  {name, options, overrides, short_fields, most, questions}
---@return table parsed  {positional = {...}, options = {name = value}, overrides = {{key, text,
---   argument}}}
function words.parse(args, command)
  local rows = words.rows(command.options)
  local parsed = { positional = {}, options = {}, overrides = {} }
  local i = 1

  -- the next word as a value, unless it is an option
  local function next_value(option, wanted)
    local word = args[i + 1]
    if word == nil or word:match("^%-%-") then
      fault.usage("%s: %s: expected %s, got nothing; try: %s%s%s", command.name,
        option, wanted, option,
        option:match("^%-%-") and "=" or " ", wanted)
    end
    i = i + 1
    return word
  end

  local function set(row, value)
    local key = row.name:gsub("-", "_")
    if row.least then
      local n = math.tointeger(tonumber(value))
      if not n or n < row.least then
        fault.usage("%s: --%s: expected a whole number of at least %d, got '%s'",
          command.name, row.name, row.least, value)
      end
      value = n
    end
    if row.many then
      parsed.options[key] = parsed.options[key] or {}
      table.insert(parsed.options[key], value)
    else
      parsed.options[key] = value
    end
  end

  -- true or false after a bare flag belongs to it; other words do not
  local function flag_value(given)
    if given == nil and args[i + 1] and booleans[args[i + 1]:lower()] ~= nil then
      i = i + 1
      given = args[i]
    end
    return given
  end

  local function own_option(name, given)
    local row = find(rows, name)
    if row and row.value then
      local value = given or next_value("--" .. name, row.value)
      if value == "" and not row.empty then
        fault.usage("%s: --%s: expected %s, got nothing", command.name, name, row.value)
      end
      for _ = 1, row.further or 0 do
        value = value .. " " .. next_value("--" .. name, row.value)
      end
      local function more() return row.takes and args[i + 1] and row.takes(args[i + 1], parsed) end
      while more() do
        i = i + 1
        if row.many then
          set(row, value)
          value = args[i]
        else
          value = value .. " " .. args[i]
        end
      end
      set(row, value)
    elseif row then
      local text = flag_value(given)
      local value = booleans[(text or "true"):lower()]
      if value == nil then
        fault.usage("%s: --%s: expected true or false, got '%s'", command.name, name, text)
      end
      set(row, value)
    else
      local positive = name:match("^no%-(.+)")
      row = positive and find(rows, positive)
      if not row or row.value or given then
        return false
      end
      set(row, false)
    end
    return true
  end

  -- A pattern that the shell has expanded: more paths of the same depth belong to the value, which
  -- becomes a list.
  local function whole_pattern(first)
    local base = require "moonreel.core.base"
    local function depth(path) return select(2, path:gsub("[^/]+", "")) end
    local paths = { first }
    while args[i + 1] and base.exists(first) and base.exists(args[i + 1])
        and depth(args[i + 1]) == depth(first)
      and not args[i + 1]:match("%.lua$") and not base.exists(args[i + 1] .. ".lua") do
      i = i + 1
      paths[#paths + 1] = args[i]
    end
    return #paths == 1 and first or "{" .. table.concat(paths, ",") .. "}"
  end

  local function field(name, given, word)
    local override = require "moonreel.recipe.override"
    local _, of_stage = require("moonreel.settings.stages").split(name)
    local target, problem = override.target(of_stage or name)
    if not target then
      local positive = (of_stage or name):match("^no[-_](.+)")
      target = positive and override.target(positive)
      if not target or target.schema.tag ~= "boolean" or given then
        unknown(command, name, problem)
      end
    elseif target.schema.tag == "boolean" then
      if given == nil and args[i + 1] and override.is_flag_value(args[i + 1]) then
        i = i + 1
        given = args[i]
      end
    else
      local taken = given == nil
      given = given or next_value("--" .. name, "VALUE")
      if taken and target.schema.tag == "checkpoint" then
        given = whole_pattern(given)
      end
    end
    local argument = word
    if given and not word:find("=", 1, true) then
      argument = word .. " " .. given
    end
    table.insert(parsed.overrides, { key = name, text = given, argument = argument })
  end

  while i <= #args do
    local word = args[i]
    if word == "--" then
      for j = i + 1, #args do
        table.insert(parsed.positional, args[j])
      end
      break
    elseif word:match("^%-%-.") then
      local name, given = word:match("^%-%-([^=]*)=(.*)$")
      name = name or word:sub(3)
      if not own_option(name, given) then
        if not command.overrides then
          unknown(command, name)
        end
        field(name, given, word)
      end
    elseif word:match("^%-%a") then
      local row
      for _, other in ipairs(rows) do
        if other.short == word:sub(2, 2) then
          row = other
        end
      end
      local short_field = (command.short_fields or {})[word:sub(2, 2)]
      if short_field then
        row = { name = short_field, value = "N", is_field = true }
      end
      if not row then
        fault.usage("%s: %s: no such option; try: moonreel %s --help", command.name,
          word, command.name)
      end
      local given = #word > 2 and word:sub(3) or not row.value or next_value(word, row.value)
      if given == "" then
        fault.usage("%s: %s: expected %s, got nothing", command.name, word, row.value)
      end
      if row.is_field then
        table.insert(parsed.overrides, { key = row.name, text = given,
          argument = ("-%s %s"):format(word:sub(2, 2), given) })
      else
        set(row, given)
      end
    elseif command.overrides and word:match("^%a[%w_%.:%-]*=") then
      local key, text = word:match("^([^=]*)=(.*)$")
      table.insert(parsed.overrides, { key = key, text = text, argument = word })
    else
      table.insert(parsed.positional, word)
    end
    i = i + 1
  end
  local further = parsed.positional[(command.most or math.huge) + 1]
  if further then
    fault.usage("%s: '%s': expected %s; usage: moonreel %s", command.name, further,
      command.most == 0 and "no word" or ("at most %d word"):format(command.most), command.usage)
  end
  refuse_aside(command, parsed.options)
  return parsed
end

return words
