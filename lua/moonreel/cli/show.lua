--- `moonreel show RECIPE`: the recipe resolved; needs no data, device or reader.
-- @module moonreel.cli.show
local printer = require "moonreel.text.table"

local show = {
  name = "show",
  summary = "print a resolved recipe: first the fields that are set, each with its line, then "
    .. "defaults",
  usage = "show RECIPE [key=value ...] [--changed] [--stage NAME] [--json|--lua|--tree|--diff "
    .. "OTHER|--as SYSTEM]",
  overrides = true,
  options = {
    { "--json", "{hash, settings, origin}" },
    { "--lua", "a recipe without parents that bakes to the same hash" },
    { "--stage NAME", "one stage of a recipe with stages" },
    { "--tree", "print by record, with the line of each value as a comment" },
    { "--as SYSTEM", "only fields that are set, under the names of opensora-1.2 or opensora-2.0" },
    { "--changed", "only fields that are set, without defaults" },
    { "--diff OTHER", "only differences from another recipe; exit 1 if there are any" },
  },
  questions = { { "diff", "stage json" }, { "as", "stage json" }, { "tree", "stage changed" },
    { "lua", "stage" }, { "json", "stage" } },
}

local BEFORE = 20  -- shown characters of a long value in front of a difference

local columns = { { key = "field" }, { key = "value", format = printer.short },
  { key = "set_by", title = "set by" } }

-- Does a line continue the span before it? It must be the next number of the same list, in the same
-- notation.
local function goes_on(span, line)
  local keys, n = line.keys, #line.keys
  local step = math.type(keys[n]) == "integer" and math.type(span.to) == "integer"
    and keys[n] - span.to
  if not step or (span.step or step) ~= step or line.value ~= span.value or line.at ~= span.at
      or n ~= #span.keys then
    return false
  end
  for i = 1, n - 1 do
    if keys[i] ~= span.keys[i] then
      return false
    end
  end
  return true
end

-- The lines that people read: {keys, value, at, name}, one for a span of equal entries. `which` is
-- "set" for what a recipe, an argument or the environment has set, "default" for the rest, or
-- "all".
local function lines_of(settings, which)
  local kinds = require "moonreel.recipe.kinds"
  local spans = {}
  for _, leaf in ipairs(settings:leaves()) do
    local link = leaf.chain[#leaf.chain]
    local set = link ~= nil and link.set == true
    -- the shipped table of resolutions is long, and its name is enough
    if set and which ~= "default"
        or not set and which ~= "set" and leaf.row.path ~= "resolutions" then
      local line = { keys = leaf.keys, value = kinds.show(leaf.raw),
        at = link and link.at or "default", to = leaf.keys[#leaf.keys] }
      local span = spans[#spans]
      if span and goes_on(span, line) then
        span.step, span.to, span.count = line.to - span.to, line.to, (span.count or 1) + 1
      else
        spans[#spans + 1] = line
      end
    end
  end
  for _, span in ipairs(spans) do
    local from = span.keys[#span.keys]
    span.name = not span.step and tostring(from) or ("%d, %d"):format(from, from + span.step)
    if (span.count or 0) > 2 then
      span.name = span.name .. " .. " .. span.to
    end
  end
  return spans
end

local function rows_of(settings, which)
  local rows = {}
  for i, line in ipairs(lines_of(settings, which)) do
    local path = {}
    for k = 1, #line.keys - 1 do
      path[k] = tostring(line.keys[k])
    end
    path[#line.keys] = line.name
    rows[i] = { field = table.concat(path, "."), value = line.value, set_by = line.at }
  end
  return rows
end

-- Prints the values that are set, because they make a recipe what it is, then the defaults.
local function print_table(settings, changed)
  printer.print(columns, rows_of(settings, "set"))
  if not changed then
    print("\nat their defaults:\n")
    printer.print(columns, rows_of(settings, "default"))
  end
  print("\nhash " .. settings.hash)
end

-- Prints records as indented blocks.
local function print_tree(settings, changed)
  local open = {}
  for _, line in ipairs(lines_of(settings, changed and "set" or "all")) do
    -- headings of records that this line opens
    for i = 1, #line.keys - 1 do
      if open[i] ~= line.keys[i] then
        print(("  "):rep(i - 1) .. tostring(line.keys[i]))
        open[i] = line.keys[i]
        for j = i + 1, #open do
          open[j] = nil
        end
      end
    end
    for j = #line.keys, #open do
      open[j] = nil
    end
    local text = ("%s%s = %s"):format(("  "):rep(#line.keys - 1), line.name,
      printer.short(line.value))
    print(("%-56s -- %s"):format(text, line.at))
  end
  return 0
end

-- Prints the values that are set, under the names of a reference system.
local function print_as(settings, system, options)
  local kinds = require "moonreel.recipe.kinds"
  local reference = require "moonreel.settings.reference_names"
  local known = false
  for _, name in ipairs(reference.systems) do
    known = known or name == system
  end
  if not known then
    require("moonreel.recipe.fault").usage("show: --as: expected %s, got '%s'",
      table.concat(reference.systems, " or "), system)
  end
  local rows = {}
  for _, leaf in ipairs(settings:leaves()) do
    local link = leaf.chain[#leaf.chain]
    if link and link.set then
      local name = reference.of(system, leaf.path)
      if name then
        rows[#rows + 1] = { field = name, value = kinds.show(leaf.raw), set_by = link.at }
      else
        io.stderr:write(("note: %s = %s has no name in %s\n"):format(leaf.path,
          kinds.show(leaf.raw), system))
      end
    end
  end
  printer.print(columns, rows, options)
  return 0
end

-- Cuts two long values so that the difference is visible.
local function cut(row)
  local now, was = row.now, row.was
  if now and was and printer.short(now) == printer.short(was) then
    local at = 1
    while now:byte(at) == was:byte(at) do
      at = at + 1
    end
    -- cut at whole characters, and keep some of them in front
    local from = utf8.offset(now, 0, at)
    from = utf8.offset(now, -BEFORE, from)
    now, was = "..." .. now:sub(from), "..." .. was:sub(from)
  end
  row.now, row.was = now and printer.short(now), was and printer.short(was)
end

local function print_difference(a, b, options)
  local rows = require "moonreel.settings.difference"(b, a)
  if not options.json then
    for _, row in ipairs(rows) do
      cut(row)
    end
  end
  printer.print({ { key = "path", title = "field" }, { key = "now", title = "value" },
    { key = "was", title = "other" }, { key = "resume", title = "on resume" } }, rows, options)
  return #rows == 0 and 0 or 1
end

function show.run(args)
  local parsed = require("moonreel.settings.words").parse(args, show)
  local fault = require "moonreel.recipe.fault"
  if #parsed.positional ~= 1 then
    fault.usage("show: expected one recipe, got %d; try: moonreel show RECIPE", #parsed.positional)
  end
  local bake = require("moonreel.settings").bake
  local options = parsed.options
  local settings = bake(parsed.positional[1], parsed.overrides, { stage = options.stage })
  for _, note in ipairs(settings.notes) do
    io.stderr:write("note: ", note, "\n")
  end
  if options.diff then
    return print_difference(settings, bake(options.diff, parsed.overrides), options)
  end
  if options.as then
    return print_as(settings, options.as, options)
  end
  if options.tree then
    return print_tree(settings, options.changed)
  end
  if options.json then
    io.write(settings:to_json())
  elseif options.lua then
    io.write(settings:to_recipe())
  else
    print_table(settings, options.changed)
  end
  return 0
end

return show
