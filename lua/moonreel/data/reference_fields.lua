--- Data sets of the references that have no reader yet. Ref: opensora-1.2.md 4.2, opensora-2.0.md
-- 9.
return {
  record = "dataset",
  types = {
    video_text = { help = "2.0: clips and stills with captions and rates", reader = false },
    text = { help = "2.0: prompts to render, .csv or one a line" },
    BatchFeatureDataset = { help = "1.2: batches of features made before", reader = false },
  },
  fields = {
    { "transform_name", "text", none = true,
      choices = { "resize_crop", "center", "rand_size_crop" }, reader = false,
      help = "how a frame is brought to the bucket's size" },
    { "fps_max", "number", none = true, min = 0, unit = "frames/s", reader = false,
      help = "faster clips are thinned to at most this" },
    { "vmaf", "boolean", default = false, reader = false,
      help = "tell the motion score in the text" },
    { "memory_efficient", "boolean", default = false, affects = "nothing",
      no_meaning = "the index is never loaded into memory",
      help = "read rows on demand" },
  },
}
