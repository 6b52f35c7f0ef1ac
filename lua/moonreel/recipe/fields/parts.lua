--- Records whose `type` selects their fields; the rows are next to the code that reads them, in
-- *_fields.lua.
return {
  records = { ae = "vae", autoencoder = "vae", objective = "scheduler", t5 = "text_encoder" },
  { "model.type", "text", none = true, default = "STDiT3-XL/2", reader = "model",
    resume = "refuse", help = "the diffusion model, or an autoencoder that is trained alone" },
  { "vae.type", "text", none = true, reader = "model", resume = "refuse", help = "the autoencoder; "
    .. "none: latents come from the data" },
  { "vae.from_pretrained", "checkpoint", none = true, reader = "codec", resume = "refuse",
    help = "weights of the autoencoder: file or folder; recipe.previous: those trained by the "
      .. "preceding stage" },
  { "text_encoder.type", "text", none = true, reader = "model", resume = "refuse",
    help = "the text encoder; none: features come from the data" },
  { "clip.type", "text", none = true, reader = "model", resume = "refuse",
    help = "a second text encoder, which gives one vector per caption" },
  { "scheduler.type", "text", default = "rflow", reader = "diffusion", resume = "refuse",
    help = "the training objective and its sampler" },
  { "img_flux.type", "text", none = true, reader = "sample", affects = "nothing",
    help = "image model that renders the first frame" },
  { "img_flux.from_pretrained", "text", none = true, reader = "sample", affects = "nothing",
    help = "weights of the image model" },
  { "img_flux_ae.type", "text", none = true, reader = "sample", affects = "nothing",
    help = "autoencoder of the image model" },
  { "img_flux_ae.from_pretrained", "text", none = true, reader = "sample", affects = "nothing",
    help = "weights of the image model's autoencoder" },
}
