--- Fields of Flux's autoencoder of pictures. Ref: opensora-2.0.md 15.
local function row(name, kind, more)
  more[1], more[2], more.reader, more.resume = name, kind, "model", "refuse"
  return more
end

return {
  record = { "vae", "img_flux_ae" },
  types = { autoencoder_2d = { help = "autoencoder of pictures, 16 channels, 8 x 8" } },
  fields = {
    { "resolution", "integer", default = 256, min = 1, affects = "nothing",
      no_meaning = "layers are the same for all sizes", help = "size it was trained at" },
    row("in_channels", "integer", { default = 3, min = 1, help = "channels of a picture" }),
    row("ch", "integer", { default = 128, min = 1, help = "width of the first level" }),
    row("out_ch", "integer", { default = 3, min = 1, help = "channels of the result" }),
    row("ch_mult", { list = "integer" }, { default = { 1, 2, 4, 4 }, min = 1,
      help = "width of each level relative to the first" }),
    row("num_res_blocks", "integer", { default = 2, min = 1,
      help = "residual blocks of a level" }),
    row("z_channels", "integer", { default = 16, min = 1, help = "channels of the latent" }),
    row("norm_groups", "integer", { default = 32, min = 1, help = "groups of each norm" }),
    row("scale_factor", "number", { default = 0.3611, min = 1e-6,
      help = "factor that scales the latent" }),
    row("shift_factor", "number", { default = 0.1159,
      help = "value subtracted from the latent before scaling" }),
  },
}
