--- The deep compression autoencoder of Open-Sora 2.0. Its record is vae, or model while it is
-- trained.
-- Ref: opensora-2.0.md 12.
local function row(name, kind, more)
  more[1], more[2], more.reader = name, kind, "model"
  more.resume = not more.affects and "refuse" or nil
  return more
end

return {
  record = { "vae", "model" },
  types = { dc_ae = { help = "deep compression autoencoder, 128 channels, 32 x 32 x 4" } },
  fields = {
    row("model_name", "text", { none = true, choices = { "dc-ae-f32t4c128" },
      help = "a known configuration, which sets the sizes of the fields below" }),
    { "from_scratch", "boolean", default = false, affects = "nothing",
      no_meaning = "nothing is ever downloaded",
      help = "build the model here rather than fetch it by name" },
    row("scaling_factor", "number", { none = true, min = 1e-6,
      help = "divisor of the latents; none: no division. Open-Sora 2.0 trains without it and "
        .. "divides at sampling: none in training reproduces that" }),
    row("in_channels", "integer", { default = 3, min = 1, help = "channels of a picture" }),
    row("out_channels", "integer", { default = 3, min = 1, help = "channels of the result" }),
    row("latent_channels", "integer", { default = 128, min = 1, help = "channels of the latent" }),
    row("widths", { list = "integer" }, { default = { 128, 256, 512, 512, 1024, 1024 }, min = 1,
      help = "width of each level, the finest first" }),
    row("encoder_blocks", { list = "integer" }, { default = { 2, 2, 2, 3, 3, 3 }, min = 0,
      help = "blocks of each level of the encoder" }),
    row("decoder_blocks", { list = "integer" }, { default = { 3, 3, 3, 3, 3, 3 }, min = 0,
      help = "blocks of each level of the decoder" }),
    row("attention_levels", "integer", { default = 3, min = 0,
      help = "coarse levels with attention over all cells" }),
    row("temporal_levels", { list = "integer" }, { default = { 3, 4 }, min = 0,
      help = "levels after which frames are joined, counted from the finest, 0" }),
    row("frames_at_once", "integer", { default = 8, min = 0, unit = "frames", affects = "speed",
      help = "ours: most frames of a piece, for a clip with more than six times as many; results "
        .. "equal those of the whole clip; 0: the whole clip" }),
    row("use_spatial_tiling", "boolean", { default = false,
      help = "under compat: process pictures in blended tiles, as the reference does to save "
        .. "memory" }),
    row("use_temporal_tiling", "boolean", { default = false,
      help = "under compat: clips in blended pieces of time" }),
    row("spatial_tile_size", "integer", { default = 256, min = 1, unit = "pixels",
      help = "side of a tile" }),
    row("temporal_tile_size", "integer", { default = 32, min = 1, unit = "frames",
      help = "length of a tile" }),
    row("tile_overlap_factor", "number", { default = 0.25, min = 0, max = 0.5,
      help = "share by which tiles overlap" }),
    { "disc_off_grad_ckpt", "boolean", default = false, affects = "nothing",
      no_meaning = "the last layer is never recomputed",
      help = "no recomputation under the discriminator" },
  },
}
