--- Fields of clips, their order, buckets and masks.
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
    help = "kind of data set: which inputs a model gets from a row of the index" },
  { "dataset.data_path", "text", none = true, spellings = { "data_path" },
    reader = "data", resume = "free",
    help = "an index NAME.mrx, or a table of clips, whose index (next to it) is used or built "
      .. "first" },
  { "dataset.sources", { map = { record = {
      { "data_path", "text" },
      { "weight", "number", min = 0, max = 1e12 },
      { "epochs", "integer", min = 0 },
      { "column", "text" }, { "quantiles", { list = "number", count = 2 }, min = 0, max = 1 },
      { "trim_top", "number", min = 0, max = 1 },
      { "data_change", "text", choices = { "refuse", "carry", "next", "restart" } } } } },
    none = true, reader = "data", resume = "free",
    help = "what a resume does if the samples differ from those of the checkpoint: refuse; carry: "
      .. "train the rest of the epoch without the samples already trained; next: begin the next "
      .. "epoch; restart: begin the first epoch" },
  { "dataset.hold_back", "number", default = 0, min = 0, reader = "data", resume = "warn",
    help = "samples of each source that are not trained but kept for `watch --eval-loss` and job = "
      .. "\"eval_loss\": a share below 1, or a count. Hashes of their keys choose them, so they "
      .. "are the same for all ranks and launches" },
  { "dataset.phases", { map = { record = {
      { "samples", "integer", min = 1, unit = "samples" },
      { "weights", { map = "number" }, min = 0, max = 1e12 },
      { "blend", "integer", min = 0, unit = "samples" } } }, key = "integer" }, none = true,
    reader = "data", resume = "free",
    help = "weights of the sources for consecutive parts of the run: each phase has samples (its "
      .. "length; the last one needs none), weights (source -> weight; others keep theirs), blend "
      .. "(samples over which it replaces the phase before; 0: at once; none: a 20th of the phase, "
      .. "and at least 200 steps of virtual_ranks)" },
  { "bucket_config", { map = { map = "bucket", key = "integer", least = 1 } }, none = true,
    reader = "data", resume = "warn",
    help = "resolution -> frames -> {keep, batch} or {{keep, try}, batch}" },
  { "bucket_costs", { map = { map = "number", key = "integer", least = 1 } }, none = true, min = 0,
    reader = "data", resume = "warn",
    help = "resolution -> frames -> cost of a micro-batch, in any unit; none: its pixels" },
  { "virtual_ranks", "integer", default = 1, min = 1, unit = "micro-batches", reader = "data",
    resume = "warn",
    help = "this many consecutive micro-batches have nearly the same cost, because ranks share "
      .. "them; best a multiple of the number of ranks. A step takes this many for each of "
      .. "accumulate, for any number of ranks; 1: the number of ranks when the run begins" },
  { "share_out", "text", default = "turns", choices = { "turns", "lpt" }, reader = "data",
    resume = "free",
    help = "assignment of a step's micro-batches to ranks: turns: in turn, micro-batches of a slot "
      .. "cost the same; lpt: drawn without slots, the costliest goes to the rank with the least "
      .. "work, for accumulate of 4 and more" },
  { "tail", "text", default = "short", choices = { "short", "carry" }, reader = "data",
    resume = "warn",
    help = "samples of a bucket that do not fill a micro-batch at the end of an epoch: short "
      .. "trains them in a smaller micro-batch; carry trains them first in the next epoch" },
  { "order", "text", none = true, choices = { "own", "reference" }, reader = "data",
    resume = "refuse", position = true,
    help = "order of the samples: own: each sample once an epoch, for any ranks and restarts; "
      .. "reference: the order of the system that compat names, with its random generators: "
      .. "without incomplete batches, in lists of 8 bytes a row, for a single data set, within an "
      .. "epoch; none: reference if compat is set, otherwise own" },
  { "data_change", "text", default = "refuse", choices = { "refuse", "carry", "next", "restart" },
    reader = "data", affects = "nothing", resume = "free",
    help = "what a resume does when the samples differ from those of the checkpoint: refuse; "
      .. "carry: train the rest of the epoch without those already trained; next: begin the next "
      .. "epoch; restart: begin the first epoch" },
  { "allow_empty_buckets", "boolean", default = false, reader = "data", resume = "free",
    help = "skip lengths of bucket_config that no sample can enter, instead of refusing them" },
  { "resolutions", { map = { record = {
      { "pixels", "integer", min = 1 },
      { "aspects", { list = "aspect" } } } } }, none = true, reader = "data",
        resume = "warn",
    default = require "moonreel.recipe.resolutions",
    help = "name -> pixels and aspects: {ratio, height, width}; the first one wins if several "
      .. "match equally" },
  { "mask_ratios", { map = "number", keys = strategies }, none = true, min = 0,
    max = 1, reader = "trainer",
    when = { "model.type", autoencoder = false },
    help = "strategy -> share of clips in which some frames stay clean; none: no masks" },
  { "cached", "boolean", default = false, reader = "trainer", affects = "speed",
    when = { "model.type", autoencoder = false },
    help = "read latents and text features from the cache, which job = \"extract\" makes, instead "
      .. "of computing them with the encoders; the run has the same bits" },
  { "cache", "text", none = true, reader = "trainer", affects = "nothing", resume = "free",
    when = { any = { { "cached", true }, { "load_video_features", true },
      { "load_text_features", true }, { "job", "extract" } } },
    help = "folder of the cache; none: NAME.cache next to the index" },
  { "part", "text", none = true, reader = "job", affects = "nothing", resume = "free",
    when = { "job", "extract" },
    help = "I/N: process only this part of the samples, for N processes or machines; the cache is "
      .. "complete when all parts are made" },
  { "batch_size", "integer", none = true, min = 1, reader = "sample", resume = "free",
    help = "renderings in a batch if sampling.batch_size is not set; clips that job = "
      .. "\"reconstruct\" reads at a time. A training step uses the batches of bucket_config, and "
      .. "training refuses another value here" },
  { "num_workers", "integer", default = 4, min = 0, reader = "data", affects = "speed",
    help = "decoder threads" },
  { "prefetch", "integer", default = 2, min = 1, spellings = { "prefetch_factor" },
    reader = "data", affects = "speed",
    help = "batches that are ready before the step needs them" },
  { "num_bucket_build_workers", "integer", default = 1, min = 1, affects = "nothing",
    no_meaning = "buckets are built in one pass over the index",
    help = "workers that assign buckets" },
}
