--- The names that the prompt and scripts offer: {name, help, module or function}; `typed`: only at
-- the prompt.
-- @module moonreel.repl.offered
return {
  { "open", 'x = open("CKPT|RUN|RECIPE|NAME.mrx|CLIP"): a checkpoint, settings, an index or a '
    .. 'decoded clip; the first of a kind is also ckpt (and run), r, index or clip' },
  { "help", "help(): this page; help(x), help(\"name\"): an op, a field of recipes, a function, a "
    .. "method, a module" },
  { "trace", "trace(): the call stack of the last failure", typed = true },
  { "exit", "leave the prompt; also quit, Ctrl-D", typed = true },
  { "plot", "plot(x, {png =, field =}): values as a line" },
  { "hist", "hist(x, {bins =, png =}): distribution of values" },
  { "imshow", "imshow(x, {png =}): [H, W], [3, H, W] or [H, W, 3] as a picture" },
  { "decode", "decode(path, {frames =, height =, width =, start =, interval =}): a clip" },
  { "diff", "diff(a, b, {map =, pattern =}): two checkpoints, bit for bit" },
  { "norms", "norms(ckpt, pattern): norms by layer: weights, EMA, moments" },
  { "trend", 'trend(run, "norm", "spatial_blocks.*"): a statistic over the checkpoints of a run' },
  { "why", 'why("optim.lr") or why(settings, "optim.lr"): which line set a value' },
  { "graph", "graph(function(x) ... end): a small graph; g:run{x = t}, g:grad(\"x\")" },
  { "block", 'block(ckpt, "spatial_blocks.0", {x =}): one block of the model with the weights of a '
    .. 'checkpoint' },
  { "T", "tensors: T.new(dtype, dims), T.from(dims, numbers, dtype)", "moonreel.core.tensor" },
  { "ops", "ops.NAME(x, ..., {attributes}) on tensors and graph values", "moonreel.core.op" },
  { "G", "graphs and parameter tables", "moonreel.core.graph" },
  { "E", "devices and executors", "moonreel.core.exec" },
  { "nn", "layers", "moonreel.nn" },
  { "data", "clips, indexes, loaders", "moonreel.data" },
  { "comm", "ranks: comm.world():all_reduce(x); moonreel -n 4 repl", "moonreel.comm" },
  { "token", 'tok = token.open("spiece.model"): tok("a caption") is its ids as a tensor',
    "moonreel.token" },
  { "codec", 'vae = codec.open("OpenSora-VAE-v1.2"): z = vae:encode(clip), vae:decode(z)',
    "moonreel.codec" },
  { "embed", 'text = embed.open("t5-v1_1-xxl"): text("a caption") is its features as a tensor',
    "moonreel.embed" },
}
