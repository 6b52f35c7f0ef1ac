--- A 1cycle bump; everything follows lr and warmup_steps of the final recipe.
return recipe {
  lr_schedule = "1cycle",
  cooldown_steps = function(r) return r.warmup_steps or recipe.none end,
  min_lr = function(r) return r.lr / 10 end,
  max_lr = function(r) return 4 * r.lr end,
}
