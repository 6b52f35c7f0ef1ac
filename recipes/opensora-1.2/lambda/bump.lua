--- Stages 4 to 7: text only, one bump of the learning rate each.
return recipe.extend("./speedrun", "mixins/bump") {
  mask_ratios = { random = 0.0 },
  epochs = 10,
  min_lr = 1.6e-5,
}
