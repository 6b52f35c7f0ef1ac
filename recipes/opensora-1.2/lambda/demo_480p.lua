-- Five clips a step at 480p, 51 frames.
return recipe.extend("./demo_360p") {
  bucket_config = recipe.replace { ["480p"] = { [51] = { 0.5, 5 } } },
}
