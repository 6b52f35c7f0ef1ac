--- Fields of the small text encoder that trains with the model. Ref: demo.md.
return {
  record = "text_encoder",
  types = { bytes = { help = "bytes and hashed n-grams, embedded, then a transformer layer" } },
  fields = {
    { "max_length", "integer", default = 56, min = 1, reader = "model", resume = "refuse",
      help = "bytes of a caption" },
    { "width", "integer", default = 128, min = 1, reader = "model", resume = "refuse",
      help = "width of a text token" },
    { "rows", "integer", default = 4096, min = 1, reader = "model", resume = "refuse",
      help = "rows of the table of hashed n-grams" },
    { "ngrams", "integer", default = 6, min = 1, reader = "model", resume = "refuse",
      help = "longest n-gram in bytes" },
    { "num_heads", "integer", default = 4, min = 1, reader = "model", resume = "refuse",
      help = "attention heads; they divide width" },
  },
}
