--- Fields of the optimizer, the average of the weights and the learning-rate schedule.
local muon = { "optim.type", "muon" }

return {
  { "optim.type", "text", default = "adamw", choices = { "adamw", "HybridAdam", "muon" },
    spellings = { "optim.cls" },
    reader = "optim",
    help = "the optimizer; HybridAdam: the references' name for adamw with adamw_mode; muon: "
      .. "orthogonal updates of the blocks' matrices, AdamW for all other parameters" },
  { "optim.muon.lr", "number", none = true, min = 0, reader = "optim", when = muon,
    help = "learning rate of matrices at the maximum of lr_schedule, which it follows in "
      .. "proportion; none: optim.lr" },
  { "optim.muon.weight_decay", "number", none = true, min = 0, reader = "optim", when = muon,
    help = "decoupled decay of matrices; none: optim.weight_decay" },
  { "optim.muon.momentum", "number", default = 0.95, min = 0, max = 1, reader = "optim",
    when = muon, help = "decay of the gradient average that is made orthogonal" },
  { "optim.muon.nesterov", "boolean", default = true, reader = "optim", when = muon,
    help = "Nesterov momentum: add the newest gradient once more to that average" },
  { "optim.muon.scale", "text", default = "match_rms", choices = { "match_rms", "original" },
    reader = "optim", when = muon,
    help = "factor of an orthogonal update; match_rms: 0.2 sqrt(longer side of a block), as large "
      .. "as an update of AdamW; original: sqrt(max(1, rows / columns))" },
  { "optim.muon.products", "text", default = "bf16", choices = { "bf16", "fp32" },
    reader = "optim", when = muon,
    help = "operand type of the products that make an update orthogonal, independent of `dtype`; "
      .. "bf16: as in torch.optim.Muon" },
  { "optim.muon.parameters", { list = "text" }, none = true, reader = "optim", when = muon,
    help = "Lua patterns for the names of matrices that Muon updates; none: those of the model's "
      .. "blocks" },
  { "optim.muon.block", "integer", none = true, min = 8, reader = "optim", when = muon,
    help = "side of a square with as many elements as a block: Muon splits each matrix into blocks "
      .. "of whole rows and updates them one by one; a multiple of 8; none: the model's "
      .. "hidden_size" },
  { "optim.lr", "number", default = 1e-4, min = 0, spellings = { "lr" }, reader = "optim",
    help = "learning rate; in a 1cycle schedule the final rate" },
  { "optim.betas", { list = "number", count = 2 }, default = { 0.9, 0.999 },
    min = 0, max = 1, reader = "optim",
    help = "decay rates of the two moments" },
  { "optim.eps", "number", default = 1e-8, min = 0, spellings = { "adam_eps", "eps" },
    reader = "optim",
    help = "added to the square root of the second moment" },
  { "optim.weight_decay", "number", default = 0, min = 0, spellings = { "weight_decay" },
    reader = "optim",
    help = "decoupled decay of all trained parameters, including biases and norms" },
  { "optim.grad_clip", "number", default = 0, min = 0, spellings = { "grad_clip" },
    reader = "optim",
    help = "largest L2 norm of the gradient; 0: off" },
  { "optim.ema_decay", "number", default = 0.9999, min = 0, max = 1, spellings = { "ema_decay" },
    reader = "optim", none = true,
    help = "decay of the averaged weights, which are f32 and are updated once a step; none: no "
      .. "averages. Open-Sora 2.0 averages in bf16 and after every micro-step; this is not "
      .. "reproduced, and its diffusion recipes set none" },
  { "optim.moment_bits", "integer", default = 32, choices = { 8, 32 }, reader = "optim",
    help = "bits of the optimizer's moments; 8: codes of a dynamic map with a scale per block, 2.3 "
      .. "bytes per parameter in place of 8, also for the first moments of Muon" },
  { "optim.offload", "boolean", default = false, reader = "optim", affects = "speed",
    help = "keep masters, moments and averages in host memory: an update copies them to the device "
      .. "piece by piece, with the same values" },
  { "optim.adamw_mode", "boolean", default = true, reader = "optim", no_meaning = "the decay is "
    .. "always decoupled", affects = "nothing",
    help = "decoupled decay" },
  { "lr_schedule", "text", default = "constant", choices = { "constant", "1cycle", "cosine" },
    reader = "optim",
    help = "constant: linear warm-up, then lr; cosine: warm-up, then half a cosine to min_lr; "
      .. "1cycle: min_lr, max_lr, lr" },
  { "warmup_steps", "integer", none = true, min = 0, unit = "steps",
    spellings = { "lr_scheduler.warmup_steps" }, reader = "optim",
    help = "steps until the rate reaches its full value" },
  { "cooldown_steps", "integer", none = true, min = 0, unit = "steps", reader = "optim",
    when = { "lr_schedule", "1cycle" },
    help = "steps from max_lr down to lr" },
  { "min_lr", "number", none = true, min = 0, reader = "optim",
    when = { "lr_schedule", "1cycle", "cosine" },
    help = "rate at the start of a 1cycle schedule, at the end of a cosine schedule" },
  { "max_lr", "number", none = true, min = 0, reader = "optim", when = { "lr_schedule", "1cycle" },
    help = "maximum rate of a 1cycle schedule" },
  { "anneal_strategy", "text", default = "cos", choices = { "cos", "linear" },
    reader = "optim", when = { "lr_schedule", "1cycle" },
    help = "shape of the two halves of a 1cycle schedule" },
}
