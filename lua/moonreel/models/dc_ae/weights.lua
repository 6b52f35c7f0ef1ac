--- Files of the deep compression autoencoder for clips. Ref: opensora-2.0.md 12.
return {
  kinds = {
    { name = "video DC-AE",
      is = function(has) return has["encoder.project_out.main.op_list.0.conv.weight"] end,
      facts = { { "levels", "^encoder%.stages%.(%d+)%." },
        { "first width", "encoder.project_in.conv.weight", 1 },
        { "latent_channels", "encoder.project_out.main.op_list.0.conv.weight", 1 } } },
  },
  layouts = {},
}
