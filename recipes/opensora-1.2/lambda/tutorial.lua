-- The whole reproduction: seven stages with the epochs that were run; the files themselves say 10
-- for 4 to 7.
return recipe {
  name = "tutorial",
  -- the command's variables; `moonreel help env` says what they do
  env = {
    NCCL_P2P_LEVEL = "NVL", NCCL_NET_GDR_LEVEL = "PIX", NCCL_IB_PCI_RELAXED_ORDERING = "1",
    NCCL_IB_HCA = "=mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7,mlx5_8",
    NCCL_SOCKET_IFNAME = "eno1", NCCL_DEBUG = "WARN",
    TORCH_NCCL_ASYNC_ERROR_HANDLING = "1", TORCH_NCCL_ENABLE_MONITORING = "1",
      TOKENIZERS_PARALLELISM = "false",
    OMP_NUM_THREADS = "16",
  },
  stages = {
    { name = "stage1", recipe = "./stage1",
      ckpt_path = "pretrained_models/PixArt-Sigma-XL-2-2K-MS.pth", data_path = "OpenVid1M.csv" },
    { name = "stage2", recipe = "./stage2", ckpt_path = recipe.previous,
      data_path = "OpenVid1M.csv" },
    { name = "stage3", recipe = "./stage3", ckpt_path = recipe.previous,
      data_path = "OpenVid1M-Miradata330k.csv" },
    { name = "stage4", recipe = "./stage4", ckpt_path = recipe.previous,
      data_path = "OpenVid1M-Miradata330k.csv", epochs = 3 },
    { name = "stage5", recipe = "./stage5", ckpt_path = recipe.previous,
      data_path = "OpenVid1M-Miradata330k.csv", epochs = 1 },
    { name = "stage6", recipe = "./stage6", ckpt_path = recipe.previous,
      data_path = "OpenVid1M-Miradata330k.csv", epochs = 1 },
    -- stage 6 again, after its crash
    { name = "stage7", recipe = "./stage7", ckpt_path = recipe.previous,
      data_path = "OpenVid1M-Miradata330k.csv", epochs = 3 },
  },
}
