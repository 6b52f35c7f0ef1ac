--- Fields that say how a run is spread over devices. Ref: opensora-2.0.md 6.
local rows = {}

local function add(path, kind, rest)
  rest[1], rest[2], rest.affects, rest.none = path, kind, "speed", rest.none ~= false or nil
  if rest.reader == nil and not rest.no_meaning then
    rest.reader = false
  end
  rows[#rows + 1] = rest
end

add("plugin", "text", { reader = "trainer",
  help = "the references' name of a parallel mode: zero2, zero2-seq, hybrid" })
-- the references set these for an autoencoder, whose ranks share only clips
local ALONE = "ranks of an autoencoder share only clips"
add("plugin_ae", "text", { no_meaning = "plugin_config_ae says what ranks share",
  help = "the same for the autoencoder" })
add("plugin_config_ae.tp_size", "integer", { min = 1, reader = "comm",
  help = "ranks that share the channels of the autoencoder's blocks, one clip after another" })
add("plugin_config_ae.sp_size", "integer", { min = 1, reader = "comm",
  help = "ranks that share the rows of the clips in the autoencoder; excludes tp_size" })
for record, whose in pairs { plugin_config = "", plugin_config_ae = " of the autoencoder" } do
  local top = record == "plugin_config"
  local alone = not top and ALONE or nil
  if top then
    add(record .. ".tp_size", "integer", { min = 1, reader = "trainer",
      help = "ranks that share each layer, within a host; they divide the heads and the MLP" })
    add(record .. ".sp_size", "integer", { min = 1, spellings = { "sp_size" }, reader = "trainer",
      help = "ranks that share the tokens" })
  end
  add(record .. ".pp_size", "integer", { min = 1, no_meaning = alone,
    reader = top and "trainer" or nil,
    help = "ranks that share the depth" .. whose .. (top and "; only 1: use tp_size, sp_size "
      .. "or zero_stage = 3" or "") })
  add(record .. ".zero_stage", "integer", { min = 0, max = 3, reader = top and "trainer" or nil,
    no_meaning = alone,
    help = "state that is sharded over ranks" .. whose .. ": 0 none, from 1 on masters, moments "
      .. "and averages, from 2 on gradients, 3 also weights" })
  if top then
    add(record .. ".reduce_each", "boolean", { none = false, default = true, reader = "trainer",
      help = "with several micro-batches a step: ZeRO 2 and 3 reduce the gradients of each, so "
        .. "that no rank stores all gradients; false: whole gradients are reduced once a step, as "
        .. "in ZeRO 0 and 1, with the same bits" })
  end
  add(record .. ".enable_sequence_parallelism", "boolean", { reader = top and "trainer" or "comm",
    help = "share " .. (top and "tokens" or "rows of clips") .. " over ranks" .. whose
      .. "; false: not even with sp_size" })
  add(record .. ".sequence_parallelism_mode", "text", { reader = top and "trainer" or nil,
    no_meaning = alone,
    help = "how ranks share attention: all_to_all exchanges heads, ring_attn circulates keys" })
  if top then
    add(record .. ".ulysses_size", "integer", { min = 1, reader = "trainer",
      help = "ours: of the ranks that share the tokens, this many exchange heads, and keys "
        .. "circulate between such groups; none: all, with ring_attn 1" })
  end
  add(record .. ".overlap_allgather", "boolean",
    { no_meaning = "overlap is always scheduled", help = "overlap gathers with the update" })
  add(record .. ".static_graph", "boolean",
    { no_meaning = "every graph is static", help = "the graph never changes" })
  add(record .. ".reduce_bucket_size_in_m", "integer",
    { min = 1, word = top and "auto" or nil,
    spellings = top and { "reduce_bucket_size_in_m" } or nil,
    reader = top and "trainer" or nil,
    no_meaning = not top and "an autoencoder is not reduced" or nil,
    help = "size of a communication bucket in 2^20 elements; none: 128, above 256 ranks 512"
      .. (top and "; auto: the fastest of several sizes that are tried before the first step; a "
      .. "resumed run with the same number of ranks keeps it" or "") })
end
add("grad_ckpt_buffer_size", "integer", { min = 0, unit = "bytes", reader = "trainer",
  resume = "free",
  help = "the most pinned host memory for inputs of recomputed blocks, which wait there for the "
    .. "backward pass; every bucket has to fit; none or 0: they stay on the device" })
add("pin_memory_cache_pre_alloc_numels", { list = "integer" },
  { min = 0, no_meaning = "slots are allocated once, before the first step",
  help = "sizes of pinned buffers" })

return rows
