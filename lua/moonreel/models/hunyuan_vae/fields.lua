--- Fields of the Hunyuan video autoencoder. Ref: opensora-2.0.md 11.
local function row(name, kind, more)
  more[1], more[2], more.reader, more.resume = name, kind, "model", "refuse"
  return more
end

return {
  record = { "vae", "model" },
  types = { hunyuan_vae = { help = "causal video autoencoder, 16 channels, 8 x 8 x 4" } },
  fields = {
    row("in_channels", "integer", { default = 3, min = 1, help = "channels of a picture" }),
    row("out_channels", "integer", { default = 3, min = 1, help = "channels of the result" }),
    row("latent_channels", "integer", { default = 16, min = 1, help = "channels of the latent" }),
    row("block_out_channels", { list = "integer" }, { default = { 128, 256, 512, 512 }, min = 1,
      help = "width of each level, the finest first" }),
    row("layers_per_block", "integer", { default = 2, min = 1,
      help = "residual layers of a level" }),
    row("norm_num_groups", "integer", { default = 32, min = 1, help = "groups of each norm" }),
    row("time_compression_ratio", "integer", { default = 4, min = 1,
      help = "frames of a latent frame" }),
    row("spatial_compression_ratio", "integer", { default = 8, min = 1,
      help = "pixels of a latent cell's side" }),
    row("mid_block_add_attention", "boolean", { default = true,
      help = "attention in the middle block" }),
    row("scale_factor", "number", { default = 0.476986, min = 1e-6,
      help = "factor that scales the latent" }),
    row("shift_factor", "number", { default = 0,
      help = "value subtracted from the latent before scaling" }),
    row("use_spatial_tiling", "boolean", { default = false,
      help = "under compat: process pictures in blended tiles, as the reference does to save "
        .. "memory" }),
    row("use_temporal_tiling", "boolean", { default = false,
      help = "under compat: process clips in blended segments of time" }),
    row("sample_size", "integer", { default = 256, min = 1, unit = "pixels",
      help = "side of a tile" }),
    row("sample_tsize", "integer", { default = 64, min = 1, unit = "frames",
      help = "length of a tile" }),
    row("tile_overlap_factor", "number", { default = 0.25, min = 0, max = 0.5,
      help = "share by which tiles overlap" }),
    { "piece_size", "integer", default = 128, min = 0, unit = "MiB", reader = "model",
      affects = "speed",
      help = "results of a layer that are computed at a time, at least one frame; 0: the whole "
        .. "clip" },
  },
}
