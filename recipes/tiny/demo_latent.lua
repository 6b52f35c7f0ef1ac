-- The demo in a latent that is learned too: two stages train its video autoencoder, the third the
-- model of tiny/demo on what it makes of the clips. `make demo-latent`.
local parts = require "../lib/tiny_vae"
local pictures, frames = parts.stages(recipe)

return recipe.extend("./demo") {
  -- AdamW: what is promised of this recipe was measured with it
  optim = recipe.replace { lr = 2e-3, betas = { 0.9, 0.99 }, weight_decay = 0.01, grad_clip = 1.0,
    ema_decay = 0.99 },
  stages = { pictures, frames,
    { name = "clips", dtype = "fp32", steps = 1500,
      vae = recipe.replace { type = "OpenSoraVAE_V1_2", from_pretrained = recipe.previous,
        micro_batch_size = 48, vae_2d = parts.vae_2d, vae_temporal = parts.vae_temporal },
      model = { patch_size = { 1, 2, 2 }, in_channels = 8 } } },
}
