--- Fields of the T5 text encoder. Ref: opensora-1.2.md 6.
return {
  record = "text_encoder",
  types = { t5 = { help = "T5 v1.1 XXL, encoder only", reader = false } },
  fields = {
    { "from_pretrained", "text", none = true, reader = false, resume = "refuse",
      help = "weights: folder or Hub name" },
    { "model_max_length", "integer", default = 300, min = 1, reader = false,
      resume = "refuse", help = "text tokens" },
    { "shardformer", "boolean", default = false, affects = "nothing", no_meaning = "kernels are "
      .. "always fused",
      help = "fused kernels" },
    { "local_files_only", "boolean", default = false, affects = "nothing",
      no_meaning = "nothing is ever downloaded",
      help = "no download" },
  },
}
