-- The same with a discriminator.
return recipe.extend("./train_dc_ae") {
  model = { disc_off_grad_ckpt = true },
  grad_checkpoint = true,
  discriminator = { type = "N_Layer_discriminator_3D", input_nc = 3, n_layers = 5,
    conv_cls = "conv3d" },
  gen_loss_config = { gen_start = 0, disc_weight = 0.05 },
  disc_loss_config = { disc_start = 0, disc_loss_type = "hinge" },
  optim_discriminator = { type = "HybridAdam", lr = 1e-4, eps = 1e-8, betas = { 0.9, 0.98 },
    weight_decay = 0.0, adamw_mode = true },
  disc_lr_scheduler = { warmup_steps = 0 },
}
