-- 5 epochs of OpenVid1M and MiraData from stage 2.
return recipe.extend("../stage3", "./speedrun") { lr = 2e-4, warmup_steps = 1000 }
