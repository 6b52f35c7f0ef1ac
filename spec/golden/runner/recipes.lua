--- Kinds of JSON reference files about recipes: a pattern over the stem, function(text, check).
-- @module spec.golden.runner.recipes
return {
  { "^config_cases", function(text, result)
    require("spec.golden.runner.config_cases").run(text, result)
  end },
  { "^configs_resolved", function(text, result)
    require("spec.golden.runner.configs").run(text, result)
  end },
}
