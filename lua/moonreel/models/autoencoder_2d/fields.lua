--- The image autoencoder of Flux. Ref: opensora-2.0.md 15.
return {
  record = { "vae", "img_flux_ae" },
  types = { autoencoder_2d = { help = "2-D autoencoder, 16 channels, 8 x 8", reader = false } },
  fields = {
    { "resolution", "integer", default = 256, min = 1, reader = false, help = "size it was trained "
      .. "at" },
    { "in_channels", "integer", default = 3, min = 1, reader = false,
      help = "channels of a picture" },
    { "ch", "integer", default = 128, min = 1, reader = false, help = "width of the first level" },
    { "out_ch", "integer", default = 3, min = 1, reader = false, help = "channels of the result" },
    { "ch_mult", { list = "integer" }, default = { 1, 2, 4, 4 }, min = 1,
      reader = false, help = "width of each level over the first" },
    { "num_res_blocks", "integer", default = 2, min = 1, reader = false, help = "residual blocks "
      .. "of a level" },
    { "z_channels", "integer", default = 16, min = 1, reader = false, help = "channels of the "
      .. "latent" },
    { "scale_factor", "number", default = 0.3611, min = 0, reader = false, help = "factor of the "
      .. "latent" },
    { "shift_factor", "number", default = 0.1159, reader = false, help = "taken from the latent "
      .. "first" },
  },
}
