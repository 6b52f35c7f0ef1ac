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
    help = "a name of `resolutions`, or of 2.0: 256px, 768px" }),
  row("aspect_ratio", "text", { none = true, spellings = { "aspect_ratio" },
    help = "height to width, as 9:16; of resolutions of 2.0 width to height, as 16:9" }),
  row("fps", "number", { default = 24, min = 0, unit = "frames/s", spellings = { "fps" },
    help = "rate that the model reads" }),
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
    .. "text per line, or .csv with columns text and, where it has them, ref, neg, name" }),
  row("frame_interval", "integer", { none = true, min = 1, spellings = { "frame_interval" },
    help = "every n-th frame is rendered" }),
  row("condition_frame_length", "integer",
    { none = true, min = 0, spellings = { "condition_frame_length" },
    help = "latent frames that a continued piece takes over" }),
  row("condition_frame_edit", "number",
    { none = true, min = 0, max = 1, spellings = { "condition_frame_edit" },
    help = "how much of them is rendered anew; none: 0" }),
  row("reference_path", { list = "text" }, { none = true, spellings = { "reference_path", "ref" },
    help = "images and clips that each prompt is given, FILE;FILE" }),
  row("mask_strategy", { list = "text" }, { none = true, spellings = { "mask_strategy" },
    help = "what each prompt takes from them, LOOP,REFERENCE,FROM,TO,LENGTH,EDIT;..." }),
  row("align", "integer", { none = true, min = 1, spellings = { "align" },
    help = "taken over in multiples of this" }),
  row("loop", "integer", { none = true, min = 1, spellings = { "loop" },
    help = "pieces one after another" }),
  row("multi_resolution", "text", { none = true, choices = { "STDiT2" },
    spellings = { "multi_resolution" },
    no_meaning = "models always read size and rate", help = "give the model size and rate" }),
  row("aes", "number", { none = true, spellings = { "aes" },
    help = "aesthetic score in the text" }),
  row("flow", "number", { none = true, spellings = { "flow" },
    help = "motion score in the text" }),
  row("camera_motion", "text", { none = true, spellings = { "camera_motion" },
    help = "camera motion in the text" }),
  row("neg", { list = "text" }, { none = true, spellings = { "neg" }, help = "2.0: what each "
    .. "prompt is not; none: the empty text" }),
  row("motion_score", "text", { none = true, spellings = { "motion_score" },
    help = "2.0: motion score in the text, 1 to 15" }),
  row("cond_type", "text", { none = true, spellings = { "cond_type" }, choices = { "t2v",
      "i2v_head", "i2v_tail", "i2v_loop", "v2v_head", "v2v_tail", "v2v_head_easy",
      "v2v_tail_easy" },
    help = "2.0: visual condition, frames of reference_path at the ends of a clip; none: t2v" }),
  row("method", "text", { none = true, choices = { "i2v", "distill" },
    help = "2.0: how guidance is applied: i2v, against the negative prompt and against no "
      .. "condition; distill, as an input of a model with guidance_embed; none: i2v" }),
  row("num_steps", "integer", { none = true, min = 1, spellings = { "num_steps" },
    help = "2.0: steps of a rendering; none: 50" }),
  row("guidance", "number", { none = true, min = 0, help = "2.0: guidance of the text; none: 4" }),
  row("guidance_img", "number", { none = true, min = 0, spellings = { "guidance_img" },
    help = "2.0: guidance of the visual condition; none: 1" }),
  row("text_osci", "boolean", { default = false, help = "2.0: guidance of the text is 1 in every "
    .. "second late step" }),
  row("image_osci", "boolean", { default = false, help = "the same for that of the condition" }),
  row("scale_temporal_osci", "boolean", { default = false, help = "2.0: guidance of a picture "
    .. "grows from 1 at the first frame, less with every step" }),
  row("shift", "boolean", { none = true, help = "2.0: times move with the number of tokens; none: "
    .. "they do" }),
  row("flow_shift", "number", { none = true, min = 1e-3, max = 1e3, help = "2.0: factor by which "
    .. "times move; none: of the number of tokens" }),
  row("temporal_reduction", "integer", { none = true, min = 1, help = "2.0: frames of a latent "
    .. "frame; none: as vae has it, and another value is refused" }),
  row("is_causal_vae", "boolean", { none = true, help = "2.0: the first latent frame stands for "
    .. "one frame; none: as vae has it, and another value is refused" }),
  row("seed", "integer", { none = true, min = 0, help = "2.0: seed of the noise, counted up over "
    .. "num_sample; none: the first of seeds, under compat drawn for each rendering" }),
  row("use_t2i2v", "boolean", { default = false, spellings = { "use_t2i2v" }, help = "2.0: the "
    .. "model img_flux makes the first frame" }),
  row("img_resolution", "text", { none = true, spellings = { "img_resolution" },
    help = "2.0: resolution of that frame; none: 768px" }),
  row("save_prefix", "text", { none = true, spellings = { "save_prefix" }, help = "2.0: what names "
    .. "of files begin with" }),
  row("num_samples", "integer", { none = true, min = 1, spellings = { "num_samples" },
    help = "how many prompts to render from start_index on; none: up to end_index" }),
  row("prompt_refine", "boolean", { default = false, spellings = { "prompt_refine" },
    help = "2.0: prompts are refined by a service; this program asks none and refuses it" }),
  row("offload_model", "boolean", { default = false, spellings = { "offload_model" },
    no_meaning = "of an image and a video model one is open at a time", help = "move models "
    .. "between host and device" }),
  row("every", "integer", { default = 0, min = 0, unit = "steps", reader = "trainer",
    help = "steps after which a run saves a checkpoint and renders its prompts with it, into "
      .. "samples/ of the run, and at its end; 0: never" }),
  row("on", "text", { default = "host", choices = { "host", "device" }, reader = "trainer",
    help = "where what `sampling.every` and `eval.every` ask for is made: host: a process of its "
      .. "own on processors that the run leaves, at low priority; device: the run's device, "
      .. "between two steps" }),
  row("threads", "integer", { default = 0, min = 0, max = 4096, reader = "trainer",
    help = "compute threads of that process; 0: as many as the run leaves, one at least" }),
  row("most_share", "number", { default = 0, min = 0, max = 1, reader = "trainer",
    help = "share of the time of a run that renderings of `sampling.every` may take, "
      .. "beside the run of that of a processor; one that would take more is left out, but for the "
      .. "last one; 0: no limit" }),
  row("batch_size", "integer", { none = true, min = 1,
    help = "renderings side by side; none: batch_size, or 1 without it" }),
}
