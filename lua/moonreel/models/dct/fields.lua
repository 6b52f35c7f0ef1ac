--- The fixed 8 x 8 DCT autoencoder has no fields. Ref: demo.md.
return {
  record = "vae",
  types = { dct = { help = "block DCT of each frame in YCbCr, 24 channels; nothing is learned" } },
  fields = {},
}
