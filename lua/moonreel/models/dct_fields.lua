--- Fields of the fixed 8 x 8 DCT autoencoder. Ref: demo.md.
return {
  record = "vae",
  types = { dct = { help = "block DCT of each frame in YCbCr; nothing is learned" } },
  fields = {
    { "block", "integer", default = 8, min = 1, reader = "model", resume = "refuse", help = "side of a block in pixels" },
    { "luma", "integer", default = 16, min = 1, reader = "model", resume = "refuse", help = "luma coefficients kept, the lowest square" },
    { "chroma", "integer", default = 4, min = 1, reader = "model", resume = "refuse", help = "coefficients kept of each chroma, the lowest square" },
    { "floor", "number", default = 0.02, min = 0, reader = "model", resume = "refuse", help = "share of the overall deviation added to each channel's" },
  },
}
