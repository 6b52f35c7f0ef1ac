--- `moonreel why RECIPE KEY`: where a value comes from, oldest first.
-- @module moonreel.cli.why
local why = {
  name = "why",
  summary = "print where a value comes from, what it replaced and what follows from it",
  usage = "why RECIPE KEY [key=value ...] [--json]",
  overrides = true,
  options = { { "--stage NAME", "in one stage of a recipe that has stages" },
    { "--json", "the chain as JSON" } },
}

function why.run(args)
  local parsed = require("moonreel.settings.words").parse(args, why)
  if #parsed.positional ~= 2 then
    require("moonreel.recipe.fault").usage("why: expected a recipe and a key, got %d words; try: "
      .. "moonreel why RECIPE lr",
      #parsed.positional)
  end
  local settings = require("moonreel.settings").bake(parsed.positional[1],
    parsed.overrides, { stage = parsed.options.stage })
  local provenance = require "moonreel.settings.provenance"
  require("moonreel.text.table").print(provenance.columns,
    provenance.rows(settings, parsed.positional[2], parsed.options.json),
    parsed.options)
  return 0
end

return why
