--- Fields of a small MMDiT for specs: two heads of 16 channels, one double and two single blocks.
return { in_channels = 12, vec_in_dim = 8, context_in_dim = 10, hidden_size = 32, mlp_ratio = 2,
  num_heads = 2, depth = 1, depth_single_blocks = 2, axes_dim = { 4, 6, 6 }, theta = 10000,
  qkv_bias = true, guidance_embed = false, cond_embed = false, fused_qkv = true,
  use_liger_rope = false, patch_size = 2 }
