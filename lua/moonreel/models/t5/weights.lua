--- Files of T5 encoders: their word table has one of two names; tensors of decoders are ignored.
-- Ref: weights.md.
return {
  kinds = {
    { name = "T5 v1.1 encoder",
      is = function(has) return has["encoder.final_layer_norm.weight"] end,
      facts = { { "num_layers", "^encoder%.block%.(%d+)%." },
        { "d_model", "encoder.final_layer_norm.weight", 1 },
        { "d_ff", "encoder.block.0.layer.1.DenseReluDense.wi_0.weight", 1 },
        { "num_heads",
          "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 2 } } },
  },
  layouts = {
    { name = "T5", is = function(has) return has["encoder.final_layer_norm.weight"] end,
      rename = { { "^encoder%.embed_tokens%.weight$", "shared.weight" } },
      dropped = {}, fresh = {} },
  },
}
