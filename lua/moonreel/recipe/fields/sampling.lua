--- What `sample` renders, and what a run renders at its end.
local function row(name, kind, rest)
  rest[1], rest[2], rest.reader, rest.affects = "sampling." .. name, kind, rest.reader == nil and "sample" or rest.reader, "nothing"
  return rest
end

return {
  row("prompts", { list = "text" }, { none = true, help = "texts to render" }),
  row("frames", "integer", { default = 51, min = 1, unit = "frames", spellings = { "num_frames" },
    help = "frames of a video; 1: an image" }),
  row("height", "integer", { none = true, min = 1, unit = "pixels", help = "height; none: of the resolution" }),
  row("width", "integer", { none = true, min = 1, unit = "pixels", help = "width; none: of the resolution" }),
  row("resolution", "text", { none = true, spellings = { "resolution" }, help = "a name of `resolutions`" }),
  row("aspect_ratio", "text", { none = true, spellings = { "aspect_ratio" }, help = "as 9:16" }),
  row("fps", "number", { default = 24, min = 0, unit = "frames/s", spellings = { "fps" },
    help = "rate that the model is told" }),
  row("save_fps", "number", { none = true, min = 0, unit = "frames/s", spellings = { "save_fps" },
    help = "rate of the file; none: fps" }),
  row("seeds", { list = "integer" }, { default = { 42 }, min = 0, help = "one rendering per prompt and seed" }),
  row("ema", "boolean", { default = true, help = "render with the averaged weights" }),
  row("batch_size", "integer", { default = 1, min = 1, help = "renderings side by side" }),
}
