-- The cache that mlperf/flux1 trains from, NAME.cache next to its index: `moonreel train
-- mlperf/flux1_extract --data-path NAME.mrx`.
return recipe.extend("./flux1") {
  job = "extract", save_text_features = true,
  cached = false, epochs = 1, steps = recipe.remove,
}
