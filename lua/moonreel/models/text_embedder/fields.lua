--- Text encoders of Open-Sora 2.0. Ref: opensora-2.0.md 14.
return {
  record = { "text_encoder", "clip" },
  types = { text_embedder = { help = "T5 or CLIP, by the name of its weights", reader = false } },
  fields = {
    { "from_pretrained", "text", none = true, reader = false, resume = "refuse",
      help = "weights: folder or Hub name" },
    { "max_length", "integer", default = 512, min = 1, reader = false, resume = "refuse",
      help = "text tokens" },
    { "shardformer", "boolean", default = false, affects = "nothing", no_meaning = "kernels are "
      .. "always fused", help = "fused kernels" },
    { "cache_dir", "text", none = true, affects = "nothing", no_meaning = "nothing is ever "
      .. "downloaded",
      help = "where downloads are kept" },
  },
}
