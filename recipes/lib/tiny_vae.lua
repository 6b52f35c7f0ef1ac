--- The demo's video autoencoder: its sizes, and the two stages that train it. Pictures come first:
-- 32 x 32 pixels to 4 channels of 8 x 8 cells; then frames, two to one of 8 channels. Trained
-- together from the start the shapes are lost, and groups of fewer channels lose the colours.
local parts = {
  vae_2d = { block_out_channels = { 16, 32, 64 }, layers_per_block = { 0, 1, 1 },
    mid_block_add_attention = false, norm_group_channels = 8 },
  vae_temporal = { filters = 32, num_res_blocks = 1, channel_multipliers = { 1, 1 },
    temporal_downsample = { true, false }, num_groups = 4, latent_channels = 8 },
}

local function stage(recipe, name, before, steps, ema_decay, lengths)
  return { name = name, ckpt_path = before,
    model = recipe.replace { type = "OpenSoraVAE_V1_2", trains = name,
      vae_2d = parts.vae_2d, vae_temporal = parts.vae_temporal },
    bucket_config = recipe.replace { ["32px"] = lengths },
    vae_loss_config = { kl_loss_weight = 1e-4 }, dtype = "fp32",
    optim = recipe.replace { lr = 2e-3, betas = { 0.9, 0.99 }, grad_clip = 1.0,
      ema_decay = ema_decay },
    lr_schedule = "cosine", warmup_steps = function(r) return r.steps // 25 end, steps = steps }
end

--- Both stages: entries of `stages`.
function parts.stages(recipe)
  return stage(recipe, "pictures", recipe.none, 1400, 0.99,
      { [1] = { 1.0, 24 }, [2] = { 1.0, 12 } }),
    stage(recipe, "frames", recipe.previous, 1000, 0.98,
      { [1] = { 1.0, 32 }, [6] = { 1.0, 8 } })
end

return parts
