--- Clips, their order, buckets and masks.
local strategies = {
  identity = "no frame is given",
  random = "each frame with a chance drawn for the clip",
  intepolate = "every second frame; the references' spelling",
  quarter_random = "a run of up to a quarter of the frames", quarter_head = "up to a quarter, at "
    .. "the head",
  quarter_tail = "up to a quarter, at the tail", quarter_head_tail = "up to a quarter at both ends",
  image_random = "one frame", image_head = "the first frame", image_tail = "the last frame",
  image_head_tail = "the first and the last frame",
}

return {
  { "dataset.type", "text", default = "VariableVideoTextDataset", reader = "data",
    resume = "refuse",
    help = "what a row of the index becomes" },
  { "dataset.data_path", "text", none = true, spellings = { "data_path" },
    reader = "data", resume = "free",
    help =
      "an index NAME.mrx, or a table of clips: then the index beside it is used or built first" },
  { "dataset.sources", { map = { record = {
      { "data_path", "text" },
      { "weight", "number", min = 0, max = 1e12 },
      { "epochs", "integer", min = 0 },
      { "column", "text" }, { "quantiles", { list = "number", count = 2 }, min = 0, max = 1 },
      { "trim_top", "number", min = 0, max = 1 },
      { "data_change", "text", choices = { "refuse", "carry", "next", "restart" } } } } },
    none = true, reader = "data", resume = "free",
    help = "several data sets in one run, instead of data_path: name -> data_path, weight (1, "
      .. "against the others', in samples), epochs (after this many its share goes to the "
      .. "others; 0: none), column with quantiles (the rows between two of them, from 0 to 1, "
      .. "for data that grow harder; trim_top, 0.0001, of the largest values are left out), "
      .. "data_change (as that field). Each is trained epoch by epoch in an order of its own" },
  { "dataset.hold_back", "number", default = 0, min = 0, reader = "data", resume = "warn",
    help = "samples of each source that are never trained, for `watch --eval-loss` and job = "
      .. "\"eval_loss\": a share below 1, or a count; they are chosen by hashes of their keys, so "
      .. "they are the same for all ranks and launches" },
  { "dataset.phases", { map = { record = {
      { "samples", "integer", min = 1, unit = "samples" },
      { "weights", { map = "number" }, min = 0, max = 1e12 },
      { "blend", "integer", min = 0, unit = "samples" } } }, key = "integer" }, none = true,
    reader = "data", resume = "free",
    help = "weights of the sources that change as samples are drawn: one behind the other, each "
      .. "with samples (how many it lasts; the last one needs none), weights (source -> weight; "
      .. "others keep theirs), blend (over this many it takes the place of the one before; 0: at "
      .. "once; none: a 20th of it, and at least 200 steps of virtual_ranks)" },
  { "bucket_config", { map = { map = "bucket", key = "integer", least = 1 } }, none = true,
    reader = "data", resume = "warn",
    help = "resolution -> frames -> {keep, batch} or {{keep, try}, batch}" },
  { "bucket_costs", { map = { map = "number", key = "integer", least = 1 } }, none = true, min = 0,
    reader = "data", resume = "warn",
    help = "resolution -> frames -> what a micro-batch costs, in any unit; none: its pixels" },
  { "virtual_ranks", "integer", default = 1, min = 1, unit = "micro-batches", reader = "data",
    resume = "warn",
    help = "this many micro-batches in a row cost nearly the same, for ranks that share them; "
      .. "best a multiple of their number. A step takes this many for each of accumulate, whatever "
      .. "ranks there are; 1: as many as there are ranks when the run begins" },
  { "share_out", "text", default = "turns", choices = { "turns", "lpt" }, reader = "data",
    resume = "free",
    help = "which rank has which micro-batch of a step: by turns, those of a slot cost the same; "
      .. "lpt: drawn without slots, the costliest to the rank with least to do, for "
      .. "accumulate of 4 and more" },
  { "tail", "text", default = "short", choices = { "short", "carry" }, reader = "data",
    resume = "warn",
    help = "samples of a bucket that are no whole micro-batch at an epoch's end: short trains them "
      .. "in one that is not full; carry trains them first in the next epoch" },
  { "order", "text", none = true, choices = { "own", "reference" }, reader = "data",
    resume = "refuse", position = true,
    help = "which samples come when: own: each once an epoch, whatever ranks and restarts; "
      .. "reference: as compat's system takes them, generators included: without what is no whole "
      .. "batch, in lists that take 8 bytes a row, and one data set within an epoch; none: "
      .. "reference where compat is set, else own" },
  { "data_change", "text", default = "refuse", choices = { "refuse", "carry", "next", "restart" },
    reader = "data", affects = "nothing", resume = "free",
    help = "what a resume does when the samples are others than the checkpoint's: refuse; train "
      .. "the rest of the epoch without those that it had; begin the next epoch; begin the first "
      .. "one" },
  { "allow_empty_buckets", "boolean", default = false, reader = "data", resume = "free",
    help = "lengths of bucket_config that no sample can enter are left out instead of refused" },
  { "resolutions", { map = { record = {
      { "pixels", "integer", min = 1 },
      { "aspects", { list = "aspect" } } } } }, none = true, reader = "data",
        resume = "warn",
    default = require "moonreel.recipe.resolutions",
    help = "name -> pixels and aspects: {ratio, height, width}, the first wins among equals" },
  { "mask_ratios", { map = "number", keys = strategies }, none = true, min = 0,
    max = 1, reader = "trainer",
    when = { "model.type", autoencoder = false },
    help = "strategy -> share of clips of which some frames stay clean; none: no masks at all" },
  { "cached", "boolean", default = false, reader = "trainer", affects = "speed",
    when = { "model.type", autoencoder = false },
    help = "latents and text features come from the cache, which job = \"extract\" makes, instead "
      .. "of the encoders; the run is the same bit for bit" },
  { "cache", "text", none = true, reader = "trainer", affects = "nothing", resume = "free",
    when = { any = { { "cached", true }, { "load_video_features", true },
      { "load_text_features", true }, { "job", "extract" } } },
    help = "folder of the cache; none: beside the index, NAME.cache" },
  { "part", "text", none = true, reader = "job", affects = "nothing", resume = "free",
    when = { "job", "extract" },
    help = "I/N: this part of the samples alone, for N processes or machines; the cache holds them "
      .. "all once every part is made" },
  { "batch_size", "integer", none = true, min = 1, reader = "sample", resume = "free",
    help = "renderings side by side, where sampling.batch_size does not say; clips that job = "
      .. "\"reconstruct\" reads at once; a step takes the batches of bucket_config, and training "
      .. "refuses another number here" },
  { "num_workers", "integer", default = 4, min = 0, reader = "data", affects = "speed",
    help = "decoder threads" },
  { "prefetch", "integer", default = 2, min = 1, spellings = { "prefetch_factor" },
    reader = "data", affects = "speed",
    help = "batches that are ready ahead of the step" },
  { "num_bucket_build_workers", "integer", default = 1, min = 1, affects = "nothing",
    no_meaning = "buckets are built in one pass over the index",
    help = "workers that assign buckets" },
}
