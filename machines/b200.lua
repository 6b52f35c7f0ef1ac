-- NVIDIA B200 SXM, 180 GB, in nodes of eight with one 400 Gb/s card per GPU.
return {
  name = "B200",
  memory_bytes = 180e9,
  peak = { bf16 = 2250e12, fp8 = 4500e12, f32 = 75e12, memory = 7.7e12 },
  node = { gpus = 8, link = 740e9, link_step_s = 3.4e-6 },
  network = { cards = 8, card = 46e9, step_s = 14e-6 },
  host = { pcie = 55e9, disk = 2e9, store = 20e9 },
  restart_s = 300,
  decode_rate = 1e8,  -- 48 frames of 1080p a second by a core
  encode_rate = 1e7,  -- 40 frames of 512 x 512 a second by a core
  communication_share = 16 / 148,
  origin = { memory_bytes = "data sheet", peak = "data sheet",
    node = "assumed: that of an H100 by the links of the data sheet",
    network = "assumed: its cards by the data sheet", host = "assumed", restart_s = "assumed",
    decode_rate = "assumed", encode_rate = "assumed",
    communication_share = "assumed: as on an H100" },
  source = "NVIDIA data sheet",
}
