-- NVIDIA H200 SXM, 141 GB: the arithmetic of an H100 with more and faster memory.
return {
  name = "H200",
  memory_bytes = 143771 * 2 ^ 20,
  reserve_bytes = 4e9,  -- driver, cuBLAS, NCCL: 3 to 5 GB are seen
  peak = { bf16 = 989e12, fp8 = 1979e12, f32 = 67e12, memory = 4.8e12 },
  rate = { product = 600e12, attention = 621e12, convolution = 250e12, text = 500e12,
    stream = 0.8 },
  -- by the keys that a query sees: 430, 517, 566, 590, 614 and 621 TFLOP/s with heads of 128
  attention = { length = { { 512, 430 / 621 }, { 1024, 517 / 621 }, { 2048, 566 / 621 },
      { 4096, 590 / 621 }, { 8192, 614 / 621 }, { 16384, 1 } },
    head = { { 64, 0.75 }, { 128, 1 } }, backward = 549 / 613 },
  launch_s = 3e-6,
  -- the processor of an H100
  cycle = { product = 2048, special = 16, issue = 4, shared = 128, l2 = 25,
    source = "assumed: peak at 1.83 GHz, CUDA programming guide, 25 bytes of L2" },
  node = { gpus = 8, link = 370e9, link_step_s = 3.4e-6 },
  network = { cards = 8, card = 46e9, step_s = 14e-6 },
  host = { pcie = 55e9, disk = 2e9, store = 20e9 },
  restart_s = 300,
  decode_rate = 1e8,  -- 48 frames of 1080p a second by a core
  encode_rate = 1e7,  -- 40 frames of 512 x 512 a second by a core
  communication_share = 16 / 132,
  mtbf_gpu_hours = 5.1e4,
  origin = { memory_bytes = "published: nvidia-smi", peak = "data sheet",
    reserve_bytes = "assumed: 3 to 5 GB are seen",
    rate = "assumed: what kernels of today reach at the sizes of video transformers",
    ["rate.attention"] = "assumed: FlashAttention-3 is published at 430 to 621 TFLOP/s, by length",
    attention = "published: FlashAttention-3 on an H100, pytorch/benchmark issue 2391",
    ["attention.head"] = "assumed: heads of 64 reach three quarters",
    ["attention.backward"] = "published: MagiAttention, 613 and 549 TFLOP/s of 8,192 keys",
    launch_s = "assumed: kernels of a captured graph begin some microseconds one after another",
    node = "published: NCCL tests issue 290",
    ["node.link_step_s"] = "published: NCCL graph/tuning.cc",
    network = "published: NCCL tests issue 290",
    ["network.step_s"] = "published: NCCL graph/tuning.cc",
    host = "assumed", restart_s = "assumed", decode_rate = "assumed", encode_rate = "assumed",
    communication_share = "published: 16 of its multiprocessors by NCCL, Megatron-LM's settings",
    mtbf_gpu_hours = "published: Llama 3, 16,384 GPUs" },
  source = "NVIDIA data sheet; NCCL 2.30 graph/tuning.cc; NCCL tests issue 290",
}
