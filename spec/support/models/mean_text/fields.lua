--- A toy text encoder of one vector, alone or with another.
return {
  record = { "text_encoder", "clip" },
  types = { mean = { help = "the mean of a caption's bytes, as one vector" } },
  fields = {
    { "from_pretrained", "text", none = true, reader = "model", resume = "refuse",
      help = "a folder: weights and alphabet.txt" },
    { "bytes", "integer", default = 40, min = 1, reader = "model", resume = "refuse",
      help = "bytes of a caption" },
  },
}
