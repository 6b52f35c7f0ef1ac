--- An image model makes the first frame.
return recipe {
  use_t2i2v = true, img_resolution = "768px",
  img_flux = { type = "flux", from_pretrained = "./ckpts/flux1-dev.safetensors",
    guidance_embed = true },
  img_flux_ae = { type = "autoencoder_2d", from_pretrained = "./ckpts/flux1-dev-ae.safetensors" },
}
