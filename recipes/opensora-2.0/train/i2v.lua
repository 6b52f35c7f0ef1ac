-- Half text only, the rest with frames given.
return recipe.extend("./image") {
  model = { cond_embed = true },
  condition_config = { t2v = 1, i2v_head = 5, i2v_loop = 1, i2v_tail = 1 },
}
