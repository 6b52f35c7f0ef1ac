--- `moonreel why RECIPE KEY`: which lines set a value, oldest first; also for one stage, and for an
-- entry that was removed.
-- @module moonreel.cli.why
local why = {
  name = "why",
  summary = "print which line set a value, what it replaced and what follows from it",
  usage = "why RECIPE KEY|stages.NAME.KEY [key=value ...] [--json]",
  overrides = true,
  options = { { "--stage NAME", "in one stage of a recipe with stages, like stages.NAME.KEY" },
    { "--json", "the chain as JSON" } },
}

-- The settings that have the key (the recipe's, or those of one stage), and the key in them.
local function settings_for(recipe, key, parsed)
  local fault = require "moonreel.recipe.fault"
  local name, below = require("moonreel.settings.stages").split(key)
  local stage = parsed.options.stage
  if name and stage and stage ~= name then
    fault.usage("why: %s is not a key of stage %s; try: leave --stage out", key, stage)
  end
  stage = stage or name
  local settings = require("moonreel.settings").bake(recipe, parsed.overrides, { stage = stage })
  if settings.stages and key ~= "stages" then
    io.stderr:write(("note: this value is the recipe's, for all of its stages; try: moonreel why "
      .. "%s stages.%s.%s\n"):format(recipe, settings.stages[1].name, key))
  end
  return settings, below or key
end

function why.run(args)
  local parsed = require("moonreel.settings.words").parse(args, why)
  if #parsed.positional ~= 2 then
    require("moonreel.recipe.fault").usage("why: expected a recipe and a key, got %d words; "
      .. "try: moonreel why RECIPE lr", #parsed.positional)
  end
  local settings, key = settings_for(parsed.positional[1], parsed.positional[2], parsed)
  local provenance = require "moonreel.settings.provenance"
  require("moonreel.text.table").print(provenance.columns,
    provenance.rows(settings, key, parsed.options.json), parsed.options)
  return 0
end

return why
