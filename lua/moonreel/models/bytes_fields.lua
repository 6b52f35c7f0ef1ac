--- Fields of the small text encoder that trains with the model. Ref: demo.md.
return {
  record = "text_encoder",
  types = { bytes = { help = "bytes and hashed n-grams, embedded, then transformer layers" } },
  fields = {
    { "max_length", "integer", default = 56, min = 1, reader = "model", resume = "refuse", help = "bytes of a caption" },
    { "width", "integer", default = 128, min = 1, reader = "model", resume = "refuse", help = "width of a text token" },
    { "rows", "integer", default = 4096, min = 1, reader = "model", resume = "refuse", help = "rows of the table of hashed n-grams" },
    { "ngram", "integer", default = 6, min = 1, reader = "model", resume = "refuse", help = "longest n-gram in bytes" },
    { "layers", "integer", default = 1, min = 0, reader = "model", resume = "refuse", help = "transformer layers" },
    { "heads", "integer", default = 4, min = 1, reader = "model", resume = "refuse", help = "attention heads; they divide width" },
    { "drop", "number", default = 0.1, min = 0, max = 1, reader = "model", help = "share of captions replaced by the null embedding" },
  },
}
