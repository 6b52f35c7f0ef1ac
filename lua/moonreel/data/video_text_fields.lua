--- Fields of the data set of clips with captions. Ref: opensora-1.2.md 4.2.
return {
  record = "dataset",
  types = { VariableVideoTextDataset = { help = "clips and stills of any size with captions" } },
  fields = {
    { "transform_name", "text", default = "resize_crop", choices = { "resize_crop", "center" },
      reader = false,
      help = "how a frame is brought to the bucket's size" },
    { "frame_interval", "integer", default = 1, min = 1, unit = "frames",
      reader = "data", resume = "warn",
      help = "take every n-th frame" },
    { "fps_max", "number", default = 0, min = 0, unit = "frames/s", reader = "data",
      resume = "warn",
      help = "in the order of opensora-2.0 faster clips are thinned to at most this; 0: none" },
    { "draw_epochs", "integer", default = 0, min = 0, unit = "epochs", reader = "data",
      resume = "refuse", position = true,
      help = "after so many epochs what is drawn of a sample repeats: bucket, start, caption and "
        .. "latents, so that a cache of as many epochs lasts; 0: drawn anew in every epoch" },
    { "dummy_text_feature", "boolean", none = true, affects = "nothing",
      no_meaning = "load_text_features = true takes them from a cache",
      help = "text features are made up" },
  },
}
