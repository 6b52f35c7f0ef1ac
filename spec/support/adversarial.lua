--- Words of the command line for the smallest training of an autoencoder with a discriminator on
-- the demo's clips: `model` is hunyuan_vae or dc_ae.
local demo_data = dofile "spec/support/demo_data.lua"

local MODELS = {
  hunyuan_vae = "{type='hunyuan_vae', latent_channels=4, block_out_channels=[4, 4, 8, 8], "
    .. "layers_per_block=1, norm_num_groups=2}",
  dc_ae = "{type='dc_ae', latent_channels=8, widths=[8, 8, 32], encoder_blocks=[1, 0, 1], "
    .. "decoder_blocks=[1, 0, 1], attention_levels=1, temporal_levels=[0, 1]}",
}

---@param model string
---@param files table   of spec.support.vgg: network, linear
---@param out string    folder of the run
---@param ... string    more words
---@return string[]
return function(model, files, out, ...)
  local frames = model == "dc_ae" and 4 or 5
  local list = { "model=recipe.replace" .. MODELS[model],
    "bucket_config=recipe.replace{['32px'] = {[" .. frames .. "] = {1.0, 2}}}",
    "resolutions=recipe.replace{['32px'] = {pixels = 1024, aspects = {{1.0, 32, 32}}}}",
    "data_path=" .. demo_data.path(), "outputs=" .. out, "threads=1", "num_workers=1",
    "pin_memory_cache_pre_alloc_numels=none", "plugin=none", "dtype=fp32", "epochs=1", "steps=3",
    "ckpt_every=0", "dataset.fps_max=none", "log_every=1",
    "vae_loss_config.perceptual_network=" .. files.network,
    "vae_loss_config.perceptual_linear=" .. files.linear, "discriminator.ndf=4",
    "discriminator.n_layers=3" }
  return table.move({ ... }, 1, select("#", ...), #list + 1, list)
end
