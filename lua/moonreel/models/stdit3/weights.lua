--- Weights of STDiT3 under other names: those of PixArt-Sigma, from which its stages start. Ref:
-- weights.md, opensora-1.2.md 7.7.
-- @module moonreel.models.stdit3.weights
local T = require "moonreel.core.tensor"

local COMPUTED = "computed from sizes"

-- files of an image model have one kind of blocks
local function is_pixart(has)
  return has["blocks.0.scale_shift_table"] and not has["spatial_blocks.0.scale_shift_table"]
end

-- a kernel over one picture becomes one over a clip that reads a single frame
local function add_time(t, shape)
  if #t.shape == 4 and #shape == 5 and shape[3] == 1 and T.count(t.shape) == T.count(shape) then
    return t:reshape(shape), "a time axis of 1"
  end
end

-- the null caption, cut or extended by its last row
local function set_rows(t, shape)
  local have, want = t.shape[1], shape[1]
  if #t.shape ~= 2 or t.shape[2] ~= shape[2] or have == 0 then
    return nil
  end
  local out, kept = T.new(t.dtype, shape), math.min(have, want)
  out:slice(0, 0, kept):copy_from(t:slice(0, 0, kept))
  for i = kept, want - 1 do
    out:slice(0, i, i + 1):copy_from(t:slice(0, have - 1, have))
  end
  return out, have > want and ("cut to %d rows"):format(want)
    or ("extended to %d rows by repeating the last one"):format(want)
end

return {
  kinds = {
    { name = "STDiT3", is = function(has) return has["temporal_blocks.0.scale_shift_table"] end,
      facts = { { "blocks of each kind", "^temporal_blocks%.(%d+)%." },
        { "hidden_size", "t_embedder.mlp.2.weight", 1 },
        { "in_channels", "x_embedder.proj.weight", 2 },
        { "caption_channels", "y_embedder.y_proj.fc1.weight", 2 } } },
    { name = "PixArt-Sigma, from which STDiT3 starts", is = is_pixart,
      facts = { { "blocks", "^blocks%.(%d+)%." }, { "hidden_size", "t_embedder.mlp.2.weight", 1 },
        { "caption_channels", "y_embedder.y_proj.fc1.weight", 2 } } },
  },
  layouts = {
    { name = "PixArt-Sigma", is = is_pixart,
      rename = { { "^blocks%.", "spatial_blocks." } },
      dropped = { pos_embed = COMPUTED, pos_embed_temporal = COMPUTED },
      fresh = {
        { "^temporal_blocks%.", "new; at first they change nothing", "temporal_blocks.*" },
        { "^spatial_blocks%.%d+%.attn%.[qk]_norm%.", "images were trained without",
          "spatial_blocks.*.attn.[qk]_norm.*" },
        { "^fps_embedder%.", "images have no rate", "fps_embedder.*" },
        { "^rope%.freqs$", COMPUTED, "rope.freqs" },
      } },
  },
  fit = { ["x_embedder.proj.weight"] = add_time, ["y_embedder.y_embedding"] = set_rows },
  sizes = {
    { "hidden_size", "t_embedder.mlp.2.weight", 1 },
    { "in_channels", "x_embedder.proj.weight", 2 },
    { "caption_channels", "y_embedder.y_proj.fc1.weight", 2 },
    { "model_max_length", "y_embedder.y_embedding", 1 },
  },
  counts = { { "depth", "^spatial_blocks%.(%d+)%." }, { "depth", "^temporal_blocks%.(%d+)%." } },
}
