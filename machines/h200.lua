-- NVIDIA H200 SXM, 141 GB: the arithmetic of an H100 with more and faster memory.
return {
  name = "H200",
  memory_bytes = 143771 * 2 ^ 20,
  reserve_bytes = 4e9,  -- driver, cuBLAS, NCCL: 3 to 5 GB are seen
  peak = { bf16 = 989e12, fp8 = 1979e12, f32 = 67e12, memory = 4.8e12 },
  rate = { product = 600e12, attention = 550e12, convolution = 250e12, text = 500e12,
    stream = 0.8 },
  -- the processor of an H100
  cycle = { product = 2048, special = 16, issue = 4, shared = 128, l2 = 25,
    source = "assumed: peak at 1.83 GHz, CUDA programming guide, 25 bytes of L2" },
  node = { gpus = 8, link = 370e9, link_step_s = 3.4e-6 },
  network = { cards = 8, card = 46e9, step_s = 14e-6 },
  host = { pcie = 55e9, disk = 2e9, store = 20e9 },
  restart_s = 300,
  decode_rate = 1e8,  -- 48 frames of 1080p a second by a core
  communication_share = 16 / 132,
  mtbf_gpu_hours = 5.1e4,
  origin = { memory_bytes = "published: nvidia-smi", peak = "data sheet",
    reserve_bytes = "assumed: 3 to 5 GB are seen",
    rate = "assumed: what kernels of today reach at the sizes of video transformers",
    ["rate.attention"] = "assumed: FlashAttention-3 is published at 430 to 621 TFLOP/s, by length",
    node = "published: NCCL tests issue 290",
    ["node.link_step_s"] = "published: NCCL graph/tuning.cc",
    network = "published: NCCL tests issue 290",
    ["network.step_s"] = "published: NCCL graph/tuning.cc",
    host = "assumed", restart_s = "assumed", decode_rate = "assumed",
    communication_share = "published: 16 of its multiprocessors by NCCL, Megatron-LM's settings",
    mtbf_gpu_hours = "published: Llama 3, 16,384 GPUs" },
  source = "NVIDIA data sheet; NCCL 2.30 graph/tuning.cc; NCCL tests issue 290",
}
