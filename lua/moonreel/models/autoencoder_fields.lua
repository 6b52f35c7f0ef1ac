--- Autoencoders of Open-Sora 2.0. They stand under vae, and under model where they are trained. Ref: opensora-2.0.md 11, 12.
return {
  record = { "vae", "model" },
  types = {
    hunyuan_vae = { help = "causal video autoencoder, 16 channels, 8 x 8 x 4", reader = false },
    dc_ae = { help = "deep compression autoencoder, 128 channels, 32 x 32 x 4", reader = false },
  },
  fields = {
    { "in_channels", "integer", default = 3, min = 1, reader = false, resume = "refuse", help = "channels of a picture" },
    { "out_channels", "integer", default = 3, min = 1, reader = false, resume = "refuse", help = "channels of the result" },
    { "layers_per_block", "integer", default = 2, min = 1, reader = false, resume = "refuse", help = "residual layers of a level" },
    { "latent_channels", "integer", default = 16, min = 1, reader = false, resume = "refuse", help = "channels of the latent" },
    { "model_name", "text", none = true, reader = false, resume = "refuse", help = "a known configuration: dc-ae-f32t4c128" },
    { "from_scratch", "boolean", default = false, reader = false, affects = "nothing", help = "built here rather than fetched by name" },
    { "scaling_factor", "number", none = true, min = 0, reader = false, resume = "refuse",
      help = "factor of the latent; none: the autoencoder's own" },
    { "scale_factor", "number", default = 0.476986, min = 0, reader = false, resume = "refuse", help = "factor of the latent" },
    { "shift_factor", "number", default = 0, reader = false, resume = "refuse", help = "taken from the latent first" },
    { "time_compression_ratio", "integer", default = 4, min = 1, reader = false, resume = "refuse", help = "frames of a latent frame" },
    { "use_spatial_tiling", "boolean", default = false, reader = false, affects = "speed", help = "work in tiles" },
    { "use_temporal_tiling", "boolean", default = false, reader = false, affects = "speed", help = "work in pieces of time" },
    { "spatial_tile_size", "integer", default = 256, min = 1, reader = false, affects = "speed", help = "side of a tile in pixels" },
    { "temporal_tile_size", "integer", default = 32, min = 1, reader = false, affects = "speed", help = "frames of a piece" },
    { "tile_overlap_factor", "number", default = 0.25, min = 0, max = 1, reader = false, affects = "speed",
      help = "share that tiles overlap" },
    { "disc_off_grad_ckpt", "boolean", default = false, reader = false, affects = "speed",
      help = "no recomputation under the discriminator" },
  },
}
