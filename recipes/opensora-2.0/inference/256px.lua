-- 129 frames at 256px. Ref: hpcaitech/Open-Sora 7ad6a96, configs/diffusion/inference.
return recipe {
  compat = "opensora-2.0",
  model = { type = "flux", fused_qkv = false, use_liger_rope = true, cond_embed = true },
  ckpt_path = "./ckpts/Open_Sora_v2.safetensors",
  vae = require("../parts").hunyuan,
  text_encoder = { type = "text_embedder", from_pretrained = "./ckpts/google/t5-v1_1-xxl",
    shardformer = true },
  clip = { type = "text_embedder", from_pretrained = "./ckpts/openai/clip-vit-large-patch14",
    max_length = 77 },
  dataset = { type = "text" },
  batch_size = 1,
  seed = 42,
  sampling = {
    resolution = "256px", aspect_ratio = "16:9", num_frames = 129,
    num_steps = 50, shift = true, temporal_reduction = 4, is_causal_vae = true,
    guidance = 7.5, guidance_img = 3.0, text_osci = true, image_osci = true,
      scale_temporal_osci = true,
    method = "i2v", cond_type = "t2v", motion_score = "4",
    save_fps = 24, save_dir = "samples",
  },
}
