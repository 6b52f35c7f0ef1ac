--- Fields of data sets of clips with captions. Ref: opensora-1.2.md 4.2, opensora-2.0.md 9.
return {
  record = "dataset",
  types = {
    VariableVideoTextDataset = { help = "clips and stills of any size with captions" },
    video_text = { help = "2.0: the same, and captions may tell rate and motion" },
  },
  fields = {
    { "transform_name", "text", default = "resize_crop",
      choices = { "resize_crop", "center", "rand_size_crop" }, reader = "data", resume = "warn",
      help = "how a frame is brought to the bucket's size; resize_crop: scaled until it covers it, "
        .. "then the middle; center: the same where all sizes are squares, else refused; "
        .. "rand_size_crop: refused, a sample has the size of its bucket" },
    { "frame_interval", "integer", default = 1, min = 1, unit = "frames",
      reader = "data", resume = "warn",
      help = "take every n-th frame" },
    { "fps_max", "number", default = 0, none = true, min = 0, unit = "frames/s", reader = "data",
      resume = "warn",
      help = "in the order of opensora-2.0 faster clips are thinned to at most this, and captions "
        .. "of video_text tell the rate that is left (\"24 FPS\"); 0 or none: neither" },
    { "vmaf", "boolean", default = false, reader = "data", resume = "warn",
      when = { "dataset.type", "video_text" },
      help = "captions tell the motion score that the index has as score_vmafmotion (\"4 motion "
        .. "score\")" },
    { "draw_epochs", "integer", default = 0, min = 0, unit = "epochs", reader = "data",
      resume = "refuse", position = true,
      help = "after this many epochs what is drawn of a sample repeats: bucket, start, caption and "
        .. "latents, so that a cache of as many epochs lasts; 0: new draws in every epoch" },
    { "memory_efficient", "boolean", default = false, affects = "nothing",
      no_meaning = "the index is never loaded into memory",
      help = "read rows on demand" },
    { "dummy_text_feature", "boolean", none = true, affects = "nothing",
      no_meaning = "load_text_features = true takes them from a cache",
      help = "text features are made up" },
  },
}
