--- Tokens shared by 8 ranks, the autoencoder's layers too.
return recipe.extend("./tp") {
  plugin_config = {
    tp_size = 1, sp_size = 8,
    enable_sequence_parallelism = true, sequence_parallelism_mode = "ring_attn",
      static_graph = true,
  },
}
