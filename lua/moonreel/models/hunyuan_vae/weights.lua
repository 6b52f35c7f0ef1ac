--- Files of the Hunyuan video autoencoder: released ones, and those of diffusers, have the same
-- names. Ref: weights.md.
return {
  kinds = {
    { name = "Hunyuan video autoencoder",
      is = function(has) return has["encoder.down_blocks.0.resnets.0.conv1.conv.weight"] end,
      facts = { { "levels", "^encoder%.down_blocks%.(%d+)%." },
        { "first width", "encoder.conv_in.conv.weight", 1 },
        { "latent_channels", "decoder.conv_in.conv.weight", 2 } } },
  },
  layouts = {},
}
