--- `moonreel train RECIPE [key=value ...]`: train, or continue a run.
-- @module moonreel.cli.train
local train = {
  name = "train",
  summary = "train a recipe, or continue a run",
  usage = "train RECIPE [key=value ...] [--load RUN[@STEP]|CKPT|latest]",
  overrides = true,
  short_fields = { n = "nproc_per_node" },
  fields = {
    { "--load RUN", "continue: weights, averages, optimizer, schedule, position; RUN@STEP, a checkpoint, or latest" },
    { "--start-from-scratch", "with --load: all but epoch, step and data position" },
    { "--ckpt-path PATH", "start from weights alone" },
    { "key=value", "any field of the recipe, also as --key value" },
  },
  details = "SIGINT or SIGTERM saves a checkpoint and ends with 130 or 143; a second one ends at once.",
}

function train.run(args)
  local parsed = require("moonreel.cli.options").parse(args, train)
  if #parsed.positional ~= 1 then
    require("moonreel.core.base").raise("MR_E_USAGE",
      ("train: expected one recipe, got %d; try: moonreel train RECIPE"):format(#parsed.positional))
  end
  local settings = require("moonreel.settings").bake(parsed.positional[1], parsed.overrides)
  for _, note in ipairs(settings.notes) do io.stderr:write("note: ", note, "\n") end
  return (require("moonreel.trainer").run(settings))
end

return train
