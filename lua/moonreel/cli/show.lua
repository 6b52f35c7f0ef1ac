--- `moonreel show RECIPE`: the recipe resolved; needs no data, device or reader.
-- @module moonreel.cli.show
local show = {
  name = "show",
  summary = "print a recipe resolved, with the line that set each value",
  usage = "show RECIPE [key=value ...] [--changed] [--diff OTHER] [--json|--lua]",
  overrides = true,
  options = {
    { "--json", "{hash, settings, origin}" },
    { "--lua", "a recipe without parents that bakes to the same hash" },
    { "--stage NAME", "one stage of a recipe that has stages" },
    { "--changed", "only what is not at its default" },
    { "--diff OTHER", "only what differs from another recipe; exit 1 when anything does" },
  },
}

local columns = { { key = "field" }, { key = "value" }, { key = "set_by", title = "set by" } }

local function rows_of(settings, changed)
  local kinds = require "moonreel.recipe.kinds"
  local rows = {}
  for _, leaf in ipairs(settings:leaves()) do
    local link = leaf.chain[#leaf.chain]
    -- the shipped table of resolutions is long and known by its name
    local is_table_default = leaf.row.path == "resolutions" and not (link and link.set)
    if not (changed and not (link and link.set)) and not is_table_default then
      rows[#rows + 1] = { field = leaf.path, value = kinds.show(leaf.raw), set_by = link and link.at or "default" }
    end
  end
  return rows
end

local function print_difference(a, b, options)
  local rows = require "moonreel.settings.difference"(b, a)
  require("moonreel.cli.table").print({ { key = "path", title = "field" }, { key = "now", title = "value" },
    { key = "was", title = "other" }, { key = "resume", title = "on resume" } }, rows, options)
  return #rows == 0 and 0 or 1
end

function show.run(args)
  local parsed = require("moonreel.cli.options").parse(args, show)
  local fault = require "moonreel.recipe.fault"
  if #parsed.positional ~= 1 then fault.usage("show: expected one recipe, got %d; try: moonreel show RECIPE", #parsed.positional) end
  local bake = require("moonreel.settings").bake
  local options = parsed.options
  local settings = bake(parsed.positional[1], parsed.overrides, { stage = options.stage })
  for _, note in ipairs(settings.notes) do io.stderr:write("note: ", note, "\n") end
  if options.diff then return print_difference(settings, bake(options.diff, parsed.overrides), options) end
  if options.json then
    io.write(settings:to_json())
  elseif options.lua then
    io.write(settings:to_recipe())
  else
    require("moonreel.cli.table").print(columns, rows_of(settings, options.changed))
    print("hash " .. settings.hash)
  end
  return 0
end

return show
