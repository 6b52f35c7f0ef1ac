--- Text encoders of Open-Sora 2.0. Ref: opensora-2.0.md 14.
return {
  record = { "text_encoder", "clip" },
  types = { text_embedder = { help = "T5 or CLIP, by config.json or the name" } },
  fields = {
    { "from_pretrained", "text", none = true, reader = "model", resume = "refuse",
      help = "a folder: config.json, weights, tokenizer" },
    { "max_length", "integer", default = 512, min = 2, reader = "model", resume = "refuse",
      help = "text tokens; for CLIP at most its number of positions" },
    { "shardformer", "boolean", default = false, affects = "nothing", no_meaning = "kernels are "
      .. "always fused", help = "fused kernels" },
    { "cache_dir", "text", none = true, affects = "nothing", no_meaning = "nothing is ever "
      .. "downloaded",
      help = "where downloads are kept" },
  },
}
