-- The whole reproduction: seven stages with the epochs that were run; the files themselves say 10 for 4 to 7.
return recipe {
  name = "tutorial",
  stages = {
    { name = "stage1", recipe = "./stage1", ckpt_path = "pretrained_models/PixArt-Sigma-XL-2-2K-MS.pth", data_path = "OpenVid1M.csv" },
    { name = "stage2", recipe = "./stage2", ckpt_path = recipe.previous, data_path = "OpenVid1M.csv" },
    { name = "stage3", recipe = "./stage3", ckpt_path = recipe.previous, data_path = "OpenVid1M-Miradata330k.csv" },
    { name = "stage4", recipe = "./stage4", ckpt_path = recipe.previous, data_path = "OpenVid1M-Miradata330k.csv", epochs = 3 },
    { name = "stage5", recipe = "./stage5", ckpt_path = recipe.previous, data_path = "OpenVid1M-Miradata330k.csv", epochs = 1 },
    { name = "stage6", recipe = "./stage6", ckpt_path = recipe.previous, data_path = "OpenVid1M-Miradata330k.csv", epochs = 1 },
    -- stage 6 again, after its crash
    { name = "stage7", recipe = "./stage7", ckpt_path = recipe.previous, data_path = "OpenVid1M-Miradata330k.csv", epochs = 3 },
  },
}
