--- Records whose fields their `type` selects; the rows stand with the code that reads them (*_fields.lua).
return {
  records = { ae = "vae", autoencoder = "vae", objective = "scheduler" },
  { "model.type", "text", none = true, default = "STDiT3-XL/2", reader = "model", resume = "refuse",
    help = "the diffusion model" },
  { "vae.type", "text", none = true, reader = "model", resume = "refuse",
    help = "the autoencoder; none: latents come from the data" },
  { "text_encoder.type", "text", none = true, reader = "model", resume = "refuse",
    help = "the text encoder; none: features come from the data" },
  { "scheduler.type", "text", default = "rflow", reader = "diffusion", resume = "refuse",
    help = "the training objective and its sampler" },
}
