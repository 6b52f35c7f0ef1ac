--- Fields of CLIP's text encoder. Ref: opensora-2.0.md 14.
return {
  record = "clip",
  types = { clip = { help = "the text half of CLIP: one vector of a caption" } },
  fields = {
    { "from_pretrained", "text", none = true, reader = "model", resume = "refuse",
      help = "a folder: config.json, weights, vocab.json, merges.txt" },
    { "model_max_length", "integer", default = 77, min = 2, reader = "model", resume = "refuse",
      help = "text tokens, including start and end" },
  },
}
