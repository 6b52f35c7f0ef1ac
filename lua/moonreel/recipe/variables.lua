--- Variables of the environment that runs over several hosts set, with what they do: help for `env`, which takes any.
-- @module moonreel.recipe.variables
return {
  NCCL_P2P_LEVEL = "how close two GPUs must be to talk directly; NVL: joined by NVLink",
  NCCL_NET_GDR_LEVEL = "how close a network card must be to read GPU memory itself; PIX: below one PCI switch",
  NCCL_IB_HCA = "InfiniBand cards to use; a leading = wants whole names, so that mlx5_1 does not mean mlx5_10 too",
  NCCL_IB_PCI_RELAXED_ORDERING = "1: PCI may reorder the writes of the cards, which virtual machines need for full speed",
  NCCL_SOCKET_IFNAME = "network interface over which ranks find one another",
  NCCL_DEBUG = "what NCCL tells: VERSION, WARN, INFO or TRACE",
  OMP_NUM_THREADS = "compute threads of a rank; the tutorial gives each an eighth of the processors",
  TORCH_NCCL_ASYNC_ERROR_HANDLING = "PyTorch's: a failed collective ends the rank; nothing here reads it",
  TORCH_NCCL_ENABLE_MONITORING = "PyTorch's: a thread watches for hanging collectives; nothing here reads it",
  TOKENIZERS_PARALLELISM = "of the tokenizer package: false spares threads in forked workers; nothing here reads it",
}
