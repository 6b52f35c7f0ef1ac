--- The deep compression autoencoder of Open-Sora 2.0. It stands under vae, and under model where it
-- is trained. Ref: opensora-2.0.md 12.
return {
  record = { "vae", "model" },
  types = {
    dc_ae = { help = "deep compression autoencoder, 128 channels, 32 x 32 x 4", reader = false },
  },
  fields = {
    { "model_name", "text", none = true, reader = false, resume = "refuse",
      help = "a known configuration: dc-ae-f32t4c128" },
    { "from_scratch", "boolean", default = false, reader = false, affects = "nothing",
      help = "built here rather than fetched by name" },
    { "scaling_factor", "number", none = true, min = 0, reader = false, resume = "refuse",
      help = "factor of the latent; none: the autoencoder's own" },
    { "use_spatial_tiling", "boolean", default = false, reader = false, affects = "speed",
      help = "work in tiles" },
    { "use_temporal_tiling", "boolean", default = false, reader = false,
      affects = "speed", help = "work in pieces of time" },
    { "spatial_tile_size", "integer", default = 256, min = 1, reader = false,
      affects = "speed", help = "side of a tile in pixels" },
    { "temporal_tile_size", "integer", default = 32, min = 1, reader = false,
      affects = "speed", help = "frames of a piece" },
    { "tile_overlap_factor", "number", default = 0.25, min = 0, max = 1,
      reader = false, affects = "speed",
      help = "share that tiles overlap" },
    { "disc_off_grad_ckpt", "boolean", default = false, reader = false, affects = "speed",
      help = "no recomputation under the discriminator" },
  },
}
