-- The demo in a latent that is learned too: two stages train its video autoencoder, the third the
-- model of tiny/demo on what it makes of the clips. `make demo-latent`.
local parts = require "../lib/tiny_vae"
local pictures, frames = parts.stages(recipe)

return recipe.extend("./demo") {
  stages = { pictures, frames,
    { name = "clips", dtype = "fp32", steps = 1500,
      vae = recipe.replace { type = "OpenSoraVAE_V1_2", from_pretrained = recipe.previous,
        micro_batch_size = 48, vae_2d = parts.vae_2d, vae_temporal = parts.vae_temporal },
      model = { patch_size = { 1, 2, 2 }, in_channels = 8 } } },
}
