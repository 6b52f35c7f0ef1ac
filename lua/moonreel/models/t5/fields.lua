--- Fields of the T5 text encoder. Ref: opensora-1.2.md 6.
return {
  record = "text_encoder",
  types = { t5 = { help = "T5 v1.1, encoder only, with its tokenizer" } },
  fields = {
    { "from_pretrained", "text", none = true, reader = "model", resume = "refuse",
      help = "a folder: config.json, weights, spiece.model" },
    { "model_max_length", "integer", default = 300, min = 1, reader = "model",
      resume = "refuse", help = "text tokens" },
    { "residency", "text", default = "auto", choices = { "auto", "all", "stream" },
      reader = "model", affects = "speed",
      help = "keep weights in memory (all), or read them block by block for every batch (stream); "
        .. "auto: all if they take at most half of the free memory" },
    { "shardformer", "boolean", default = false, affects = "nothing", no_meaning = "kernels are "
      .. "always fused",
      help = "fused kernels" },
    { "local_files_only", "boolean", default = false, affects = "nothing",
      no_meaning = "nothing is ever downloaded",
      help = "no download" },
  },
}
