--- Files of CLIP's text half: newer ones omit the prefix of its names. The picture half of whole
-- models is ignored. Ref: weights.md.
local FINAL = "text_model.final_layer_norm.weight"
local BARE = "embeddings.token_embedding.weight"

return {
  kinds = {
    { name = "CLIP text", is = function(has) return has[FINAL] or has[BARE] end,
      facts = { { "num_hidden_layers", "^text_model%.encoder%.layers%.(%d+)%." },
        { "hidden_size", FINAL, 1 },
        { "vocab_size", "text_model.embeddings.token_embedding.weight", 1 } } },
  },
  layouts = {
    { name = "CLIP, text alone", is = function(has) return has[BARE] end,
      rename = { { "^embeddings%.", "text_model.embeddings." },
        { "^encoder%.layers%.", "text_model.encoder.layers." },
        { "^final_layer_norm%.", "text_model.final_layer_norm." } },
      dropped = {}, fresh = {} },
  },
}
