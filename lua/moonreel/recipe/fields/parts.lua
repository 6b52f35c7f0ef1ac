--- Records whose fields their `type` selects; the rows stand with the code that reads them
-- (*_fields.lua).
return {
  records = { ae = "vae", autoencoder = "vae", objective = "scheduler", t5 = "text_encoder" },
  { "model.type", "text", none = true, default = "STDiT3-XL/2", reader = "model",
    resume = "refuse", help = "the diffusion model, or an autoencoder that trains alone" },
  { "vae.type", "text", none = true, reader = "model", resume = "refuse", help = "the autoencoder; "
    .. "none: latents come from the data" },
  { "vae.from_pretrained", "checkpoint", none = true, reader = "codec", resume = "refuse",
    help = "weights of the autoencoder: file or folder; recipe.previous: what the stage before "
      .. "trained" },
  { "text_encoder.type", "text", none = true, reader = "model", resume = "refuse",
    help = "the text encoder; none: features come from the data" },
  { "clip.type", "text", none = true, reader = "model", resume = "refuse", help = "a second text "
    .. "encoder, for one vector per caption" },
  { "scheduler.type", "text", default = "rflow", reader = "diffusion", resume = "refuse",
    help = "the training objective and its sampler" },
  { "img_flux.type", "text", none = true, reader = "sample", affects = "nothing", help = "image "
    .. "model that makes the first frame" },
  { "img_flux.from_pretrained", "text", none = true, reader = "sample", affects = "nothing",
    help = "its weights" },
  { "img_flux_ae.type", "text", none = true, reader = "sample", affects = "nothing",
    help = "autoencoder of the image model" },
  { "img_flux_ae.from_pretrained", "text", none = true, reader = "sample", affects = "nothing",
    help = "its weights" },
}
