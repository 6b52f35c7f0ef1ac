--- Layers shared by 8 ranks.
return recipe {
  plugin = "hybrid",
  plugin_config = { tp_size = 8, pp_size = 1, sp_size = 1, zero_stage = 2,
    overlap_allgather = false },
  plugin_ae = "hybrid",
  plugin_config_ae = { tp_size = 8, pp_size = 1, sp_size = 1, zero_stage = 2,
    overlap_allgather = false },
}
