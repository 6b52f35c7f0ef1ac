--- Fields of STDiT3 models. Ref: opensora-1.2.md 1.1.
local xl = { depth = 28, hidden_size = 1152, num_heads = 16 }
local size_3b = { depth = 28, hidden_size = 1872, num_heads = 26 }

return {
  record = "model",
  types = {
    ["STDiT3"] = { help = "any size", preset = xl },
    ["STDiT3-XL/2"] = { help = "1.1B parameters", preset = xl },
    ["STDiT3-3B/2"] = { help = "3B parameters", preset = size_3b },
  },
  fields = {
    { "depth", "integer", default = 28, min = 1, reader = "model", resume = "refuse", help = "pairs of a spatial and a temporal block" },
    { "hidden_size", "integer", default = 1152, min = 1, reader = "model", resume = "refuse", help = "width of a token" },
    { "num_heads", "integer", default = 16, min = 1, reader = "model", resume = "refuse", help = "attention heads; they divide hidden_size" },
    { "patch_size", { list = "integer", count = 3 }, default = { 1, 2, 2 }, min = 1, reader = "model", resume = "refuse", help = "latent cells of a token: {t, h, w}" },
    { "in_channels", "integer", default = 4, min = 1, reader = "model", resume = "refuse", help = "channels of the latent" },
    { "caption_channels", "integer", default = 4096, min = 1, reader = "model", resume = "refuse", help = "width of a text token" },
    { "model_max_length", "integer", default = 300, min = 1, reader = "model", resume = "refuse", help = "text tokens" },
    { "input_sq_size", "number", default = 512, min = 1, reader = "model", resume = "refuse", help = "side of the square that position tables are scaled to" },
    { "mlp_ratio", "number", default = 4, min = 0, reader = "model", resume = "refuse", help = "hidden width of the MLP over hidden_size" },
    { "class_dropout_prob", "number", default = 0.1, min = 0, max = 1, reader = "model", help = "share of captions replaced by the null caption" },
    { "pred_sigma", "boolean", default = true, reader = "model", resume = "refuse", help = "twice the output channels; the second half is not used" },
    { "qk_norm", "boolean", default = true, reader = "model", resume = "refuse", help = "RMS norm of queries and keys" },
    { "drop_path", "number", default = 0, min = 0, max = 1, reader = false, help = "stochastic depth; 0 in all known recipes" },
    { "temporal_pos", "text", none = true, choices = { "sincos" }, reader = "model", resume = "refuse",
      help = "ours: an absolute frame index added to the tokens; none: rotary only" },
    { "freeze_y_embedder", "boolean", default = false, reader = "model", resume = "refuse", help = "the caption embedder does not train" },
    { "only_train_temporal", "boolean", default = false, reader = "model", resume = "refuse", help = "only the temporal blocks train" },
    { "skip_y_embedder", "boolean", default = false, reader = "model", resume = "refuse", help = "text features have the model's width already" },
    { "input_size", { list = "integer" }, none = true, affects = "nothing", no_meaning = "the reference stores it and never computes with it",
      help = "latent size" },
    { "enable_flash_attn", "boolean", default = false, affects = "nothing", no_meaning = "attention is always tiled", help = "flash attention" },
    { "enable_layernorm_kernel", "boolean", default = false, affects = "nothing", no_meaning = "norms are always fused", help = "fused layer norm" },
    { "enable_sequence_parallelism", "boolean", default = false, reader = false, affects = "speed", help = "split tokens over ranks" },
    { "force_huggingface", "boolean", default = false, affects = "nothing", no_meaning = "weights are files; nothing is downloaded", help = "load from the Hub" },
  },
}
