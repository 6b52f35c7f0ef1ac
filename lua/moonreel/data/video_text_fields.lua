--- Fields of data sets of clips with captions. Ref: opensora-1.2.md 4.2, opensora-2.0.md 9.
return {
  record = "dataset",
  types = {
    VariableVideoTextDataset = { help = "clips and stills of any size with captions" },
    video_text = { help = "2.0: the same; frame rate and motion may be appended to captions" },
  },
  fields = {
    { "transform_name", "text", default = "resize_crop",
      choices = { "resize_crop", "center", "rand_size_crop" }, reader = "data", resume = "warn",
      help = "how a frame gets the bucket's size; resize_crop: scaled until it covers that size, "
        .. "then cut to the middle; center: the same if all sizes are squares, otherwise refused; "
        .. "rand_size_crop: refused, because a sample has the size of its bucket" },
    { "frame_interval", "integer", default = 1, min = 1, unit = "frames",
      reader = "data", resume = "warn",
      help = "take every n-th frame" },
    { "fps_max", "number", default = 0, none = true, min = 0, unit = "frames/s", reader = "data",
      resume = "warn",
      help = "in the order of opensora-2.0: highest rate; frames of faster clips are skipped, "
        .. "and captions of video_text get the new rate (\"24 FPS\"); 0 or none: neither" },
    { "vmaf", "boolean", default = false, reader = "data", resume = "warn",
      when = { "dataset.type", "video_text" },
      help = "append the motion score, column score_vmafmotion of the index, to captions (\"4 "
        .. "motion score\")" },
    { "draw_epochs", "integer", default = 0, min = 0, unit = "epochs", reader = "data",
      resume = "refuse", position = true,
      help = "after this many epochs the draws of a sample repeat: bucket, start, caption and "
        .. "latents, so that a cache of this many epochs is enough; 0: new draws in every epoch" },
    { "memory_efficient", "boolean", default = false, affects = "nothing",
      no_meaning = "the index is never loaded into memory",
      help = "read rows on demand" },
    { "dummy_text_feature", "boolean", none = true, affects = "nothing",
      no_meaning = "load_text_features = true takes them from a cache",
      help = "use random text features" },
  },
}
