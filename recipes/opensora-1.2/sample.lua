-- Rendering with a trained model: 51 frames at 240p.
return recipe.extend("./base") {
  scheduler = { num_sampling_steps = 30, cfg_scale = 7.0 },
  sampling = {
    resolution = "240p", aspect_ratio = "9:16",
    save_fps = 24, frame_interval = 1,
    multi_resolution = "STDiT2", condition_frame_length = 5, align = 5,
    aes = 6.5,
    save_dir = "samples",
  },
}
