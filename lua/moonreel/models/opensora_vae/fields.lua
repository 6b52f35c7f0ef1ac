--- Fields of the Open-Sora 1.2 video autoencoder. Ref: opensora-1.2.md 5.
return {
  record = "vae",
  types = { OpenSoraVAE_V1_2 = {
    help = "2-D autoencoder of images, then a temporal one; 4 channels, 8 x 8 x 4" } },
  fields = {
    { "micro_frame_size", "integer", none = true, default = 17, min = 1,
      reader = "model", resume = "refuse", help = "frames per piece in time" },
    { "micro_batch_size", "integer", default = 4, min = 1, reader = "model", affects = "speed",
      help = "frames at once in the 2-D part" },
  },
}
