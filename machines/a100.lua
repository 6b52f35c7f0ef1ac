-- NVIDIA A100 SXM, 80 GB, in nodes of eight with one 200 Gb/s card per GPU. It has no FP8 products.
return {
  name = "A100",
  memory_bytes = 81920 * 2 ^ 20,
  peak = { bf16 = 312e12, f32 = 19.5e12, memory = 2.039e12 },
  node = { gpus = 8, link = 240e9, link_step_s = 3.4e-6 },
  network = { cards = 8, card = 23e9, step_s = 14e-6 },
  host = { pcie = 26e9, disk = 2e9, store = 20e9 },
  restart_s = 300,
  decode_rate = 1e8,
  encode_rate = 1e7,  -- 40 frames of 512 x 512 a second by a core
  communication_share = 16 / 108,
  origin = { memory_bytes = "published: nvidia-smi", peak = "data sheet",
    node = "assumed: that of an H100 by the links of the data sheet",
    network = "assumed: its cards by the data sheet", host = "assumed", restart_s = "assumed",
    decode_rate = "assumed", encode_rate = "assumed",
    communication_share = "assumed: as on an H100" },
  source = "NVIDIA data sheet; NCCL 2.30 graph/tuning.cc",
}
