-- Clips through the deep compression autoencoder and back.
return recipe {
  job = "reconstruct", compat = "opensora-2.0",
  model = { type = "dc_ae", model_name = "dc-ae-f32t4c128",
    from_pretrained = "./ckpts/F32T4C128_AE.safetensors", from_scratch = true,
    use_spatial_tiling = true, use_temporal_tiling = true },
  dataset = { type = "video_text",
    data_path = "datasets/pexels_45k_necessary.csv", fps_max = 16 },
  bucket_config = { ["512px_ar1:1"] = { [96] = { 1.0, 1 } } },
  batch_size = 1, seed = 42,
  num_workers = 24, num_bucket_build_workers = 16, prefetch = 4,
  save_dir = "samples/video_dc_ae",
}
