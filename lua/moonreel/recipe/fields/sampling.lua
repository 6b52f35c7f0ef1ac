--- What `sample` renders, and what a run renders at its end.
local function row(name, kind, rest)
  rest[1], rest[2], rest.reader, rest.affects = "sampling." .. name, kind,
    rest.reader == nil and "sample" or rest.reader, "nothing"
  return rest
end

return {
  records = { sampling_option = "sampling" },
  row("prompts", { list = "text" }, { none = true, spellings = { "prompt" },
    help = "texts to render" }),
  row("frames", "integer", { default = 51, min = 1, unit = "frames",
    spellings = { "num_frames", "sampling.num_frames" },
    help = "frames of a video; 1: an image" }),
  row("height", "integer", { none = true, min = 1, unit = "pixels", help = "height; none: of the "
    .. "resolution" }),
  row("width", "integer", { none = true, min = 1, unit = "pixels", help = "width; none: of the "
    .. "resolution" }),
  row("resolution", "text", { none = true, spellings = { "resolution" },
    help = "a name of `resolutions`" }),
  row("aspect_ratio", "text", { none = true, spellings = { "aspect_ratio" },
    help = "height to width, as 9:16" }),
  row("fps", "number", { default = 24, min = 0, unit = "frames/s", spellings = { "fps" },
    help = "rate that the model is told" }),
  row("save_fps", "number", { none = true, min = 0, unit = "frames/s",
    spellings = { "save_fps", "fps_save" },
    help = "rate of the file; none: fps" }),
  row("seeds", { list = "integer" }, { default = { 42 }, min = 0, help = "one rendering per prompt "
    .. "and seed" }),
  row("ema", "boolean", { default = true, help = "render with the averaged weights" }),
  row("save_dir", "text", { none = true, spellings = { "save_dir" }, help = "folder of the "
    .. "renderings; none: the next free number below samples/" }),
  row("num_sample", "integer", { none = true, min = 1, spellings = { "num_sample" },
    help = "renderings per prompt and seed, of the seeds from it on" }),
  row("sample_name", "text", { none = true, spellings = { "sample_name" }, help = "what files are "
    .. "called before their number; none: sample" }),
  row("prompt_as_path", "boolean", { none = true, spellings = { "prompt_as_path" },
    help = "files are called like their prompts" }),
  row("start_index", "integer", { none = true, min = 0, spellings = { "start_index" },
    help = "first of the prompts to render, from 0" }),
  row("end_index", "integer", { none = true, min = 0, spellings = { "end_index" },
    help = "the prompt before which to end" }),
  row("prompt_path", "text", { none = true, spellings = { "prompt_path" }, help = "file with a "
    .. "text per line" }),
  row("frame_interval", "integer", { none = true, min = 1, spellings = { "frame_interval" },
    help = "every n-th frame is rendered" }),
  row("condition_frame_length", "integer",
    { none = true, min = 0, spellings = { "condition_frame_length" },
    help = "latent frames that a continued piece takes over" }),
  row("condition_frame_edit", "number",
    { none = true, min = 0, max = 1, spellings = { "condition_frame_edit" },
    help = "how much of them is rendered anew; none: 0" }),
  row("reference_path", { list = "text" }, { none = true, spellings = { "reference_path" },
    help = "images and clips that each prompt is given, FILE;FILE" }),
  row("mask_strategy", { list = "text" }, { none = true, spellings = { "mask_strategy" },
    help = "what each prompt takes from them, LOOP,REFERENCE,FROM,TO,LENGTH,EDIT;..." }),
  row("align", "integer", { none = true, min = 1, spellings = { "align" },
    help = "taken over in multiples of this" }),
  row("loop", "integer", { none = true, min = 1, spellings = { "loop" },
    help = "pieces one after another" }),
  row("multi_resolution", "text", { none = true, choices = { "STDiT2" },
    spellings = { "multi_resolution" },
    no_meaning = "models are always told size and rate", help = "tell the model size and rate" }),
  row("aes", "number", { none = true, spellings = { "aes" },
    help = "aesthetic score told in the text" }),
  row("flow", "number", { none = true, spellings = { "flow" },
    help = "motion score told in the text" }),
  row("camera_motion", "text", { none = true, spellings = { "camera_motion" },
    help = "camera motion told in the text" }),
  row("motion_score", "text", { none = true, spellings = { "motion_score" }, reader = false,
    help = "2.0: motion score told in the text" }),
  row("cond_type", "text", { none = true, spellings = { "cond_type" }, reader = false,
    help = "visual condition: t2v, i2v_head, i2v_loop, v2v_head" }),
  row("method", "text", { none = true, choices = { "i2v", "distill" }, reader = false,
    help = "how guidance is applied" }),
  row("num_steps", "integer", { none = true, min = 1, reader = false, help = "2.0: steps of a "
    .. "rendering" }),
  row("guidance", "number", { none = true, min = 0, reader = false, help = "2.0: guidance of the "
    .. "text" }),
  row("guidance_img", "number", { none = true, min = 0, reader = false, help = "2.0: guidance of "
    .. "the image" }),
  row("text_osci", "boolean", { default = false, reader = false, help = "guidance of the text is 1 "
    .. "in every second late step" }),
  row("image_osci", "boolean", { default = false, reader = false,
    help = "the same for the image" }),
  row("scale_temporal_osci", "boolean", { default = false, reader = false, help = "weaken image "
    .. "guidance with distance in time" }),
  row("shift", "boolean", { none = true, reader = false, help = "2.0: shift times with the number "
    .. "of tokens" }),
  row("temporal_reduction", "integer", { none = true, min = 1, reader = false, help = "frames of a "
    .. "latent frame" }),
  row("is_causal_vae", "boolean", { none = true, reader = false, help = "the first latent frame "
    .. "stands for one frame" }),
  row("seed", "integer", { none = true, min = 0, reader = false, help = "2.0: seed of the noise; "
    .. "none: drawn" }),
  row("use_t2i2v", "boolean", { default = false, spellings = { "use_t2i2v" }, reader = false,
    help = "an image model makes the first frame" }),
  row("img_resolution", "text", { none = true, spellings = { "img_resolution" },
    reader = false, help = "resolution of that frame" }),
  row("batch_size", "integer", { default = 1, min = 1, help = "renderings side by side" }),
}
