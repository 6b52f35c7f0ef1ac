--- `moonreel train RECIPE [key=value ...]`: train, or continue a run.
-- @module moonreel.cli.train
local train = {
  name = "train",
  summary = "train a recipe, or continue a run",
  usage = "train RECIPE [key=value ...] [--load RUN[@STEP]|CKPT|latest]",
  overrides = true,
  short_fields = { n = "nproc_per_node" },
  options = { { "--stage NAME", "of a recipe of stages: begin with this one" } },
  fields = {
    { "--load RUN", "continue: weights, averages, optimizer, schedule, position; RUN@STEP, a checkpoint, or latest" },
    { "--start-from-scratch", "with --load: all but epoch, step and data position" },
    { "--ckpt-path PATH", "start from weights alone" },
    { "key=value", "any field of the recipe, also as --key value; stages.NAME.key=value: of one stage" },
  },
  details = "SIGINT or SIGTERM saves a checkpoint and ends with 130 or 143; a second one ends at once.",
}

local function bake(recipe, overrides, stage)
  local settings = require("moonreel.settings").bake(recipe, overrides, { stage = stage })
  for _, note in ipairs(settings.notes) do io.stderr:write("note: ", stage and stage .. ": " or "", note, "\n") end
  return settings
end

function train.run(args)
  local parsed = require("moonreel.cli.options").parse(args, train)
  if #parsed.positional ~= 1 then
    require("moonreel.core.base").raise("MR_E_USAGE",
      ("train: expected one recipe, got %d; try: moonreel train RECIPE"):format(#parsed.positional))
  end
  local recipe, from = parsed.positional[1], parsed.options.stage
  local settings = bake(recipe, parsed.overrides)
  if settings.stages then
    local list = {}
    for i, one in ipairs(settings.stages) do
      list[i] = { name = one.name, settings = bake(recipe, parsed.overrides, one.name) }
    end
    return require("moonreel.trainer.stages").run(settings, list, { from = from })
  end
  if from then require("moonreel.recipe.fault").usage("--stage %s: the recipe has no stages", from) end
  return (require("moonreel.trainer").run(settings))
end

return train
