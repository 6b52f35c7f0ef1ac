-- 5 epochs of OpenVid1M from the PixArt-Sigma 2K weights (ckpt_path).
return recipe.extend("../stage1", "./speedrun") {}
