--- Fields of rectified flow. Ref: opensora-1.2.md 2.
return {
  record = "scheduler",
  types = { rflow = { help = "rectified flow: the model predicts x0 - noise" } },
  fields = {
    { "use_timestep_transform", "boolean", default = false, reader = "diffusion", resume = "warn",
      help = "shift t with the clip's size and length" },
    { "sample_method", "text", default = "uniform", choices = { "uniform", "logit-normal" }, reader = "diffusion",
      help = "how t is drawn in training" },
    { "use_discrete_timesteps", "boolean", default = false, reader = "diffusion", help = "whole t with sample_method uniform" },
    { "loc", "number", default = 0, reader = "diffusion", help = "mean of the logit-normal" },
    { "scale", "number", default = 1, min = 0, reader = "diffusion", help = "deviation of the logit-normal" },
    { "transform_scale", "number", default = 1, min = 0, reader = "diffusion", help = "factor of the timestep transform" },
    { "shift", "number", none = true, min = 0, reader = "diffusion",
      help = "ours: a fixed ratio of the timestep transform instead of the size's" },
    { "num_timesteps", "integer", default = 1000, min = 1, reader = "diffusion", help = "scale of t" },
    { "num_sampling_steps", "integer", default = 10, min = 1, spellings = { "num_sampling_steps" },
      reader = "sample", affects = "nothing",
      help = "Euler steps of a rendering" },
    { "cfg_scale", "number", default = 4, min = 0, spellings = { "cfg_scale" }, reader = "sample", affects = "nothing",
      help = "guidance" },
  },
}
