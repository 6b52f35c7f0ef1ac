--- Kinds of JSON reference files about recipes: a pattern over the stem, function(text, check).
-- @module moonreel.golden.recipes
return {
  { "^config_cases", function(text, result)
    require("moonreel.golden.config_cases").run(text, result)
  end },
  { "^configs_resolved", function(text, result)
    require("moonreel.golden.configs").run(text, result)
  end },
}
