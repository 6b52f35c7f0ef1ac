--- A toy autoencoder with state between its calls.
return {
  record = "vae",
  types = { carry = { help = "8 x 8 x 2, 8 channels; each latent frame keeps half of the last" } },
  fields = {
    { "keeps", "number", default = 0.5, min = 0, max = 1, reader = "model", resume = "refuse",
      help = "share of the latent frame before" },
  },
}
