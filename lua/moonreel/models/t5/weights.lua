--- Files of T5 encoders: their words stand under one of two names, and what decoders have is of no
-- use. Ref: weights.md.
return {
  layouts = {
    { name = "T5", is = function(has) return has["encoder.final_layer_norm.weight"] end,
      rename = { { "^encoder%.embed_tokens%.weight$", "shared.weight" } },
      dropped = {}, fresh = {} },
  },
}
