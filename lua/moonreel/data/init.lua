--- Clips, indexes and batches: the Lua interface of core/data and the media plug-in. Pixels are u8
-- planar RGB, [T][3][H][W], in a string.
-- @module moonreel.data
local base = require "moonreel.core.base"
local core_index = require "moonreel.core.index"
local media = require "moonreel.core.media"
local options = require "moonreel.text.options"
local foreign = require "moonreel.data.foreign"
local shards = require "moonreel.data.shards"

local data = {}

--- Writes frames as a clip; the container follows the extension (.mp4, .webm, .mkv, ...).
---@param path string
---@param pixels string|lightuserdata  u8 [frames][3][height][width]; a light userdata needs
---   options.bytes
---@param given table  frames, height, width; fps 24, codec ("h264" in .mp4, "vp9" in .webm;
---   "vp8", "av1", ...),
--- quality (the encoder's constant quality, smaller is better), gop 48, pixel_format "yuv420p",
-- matrix "bt709"
function data.encode(path, pixels, given)
  media.encode(path, pixels, given)
end

--- Writes one picture as PNG.
---@param path string
---@param pixels string|lightuserdata  u8 [3][height][width]
---@param given table  height, width
function data.png(path, pixels, given)
  media.encode(path, pixels, given)
end

--- Opens an encoder for a clip that is too long for memory: encoder:frame(pixels [3][H][W]), then
-- encoder:finish(). If it is closed before finish(), no file is left.
---@param path string
---@param given table  as data.encode, without frames
---@return mr.Encoder
function data.encoder(path, given)
  return media.encoder(path, given)
end

--- Properties of a clip: frames, fps, width, height, codec, flags.
---@param path string
---@return table
function data.scan(path)
  return media.scan(path)
end

--- Decodes frames start + i * interval, cropped to the target's aspect and scaled.
---@param path string
---@param given? table  frames, height, width (default: all, as shown), start 0, interval 1,
--- filter "bilinear" | "area" | "bicubic" | "lanczos", deadline_s 60
---@return string pixels  u8 [frames][3][height][width]
---@return table facts    as data.scan
function data.decode(path, given)
  return media.decode(path, given)
end

-- Runs an ingest to its end. If progress raises an error, or an interruption or a full disk ends a
-- step, the finished part is kept, and kept(rows, total, problem) gets the number of rows in it.
local function finish(ingest, progress, kept)
  local p
  local ok, problem = pcall(function()
    repeat
      p = ingest:step(0.1)
      if progress then
        progress(p)
      end
    until p.finished
  end)
  if ok then
    return p
  end
  local code = type(problem) == "table" and problem.code
  if not code or code == "MR_E_STOPPED" or code == "MR_E_IO" then
    local rows, total = ingest:keep()
    if kept then
      kept(rows, total, problem)
    end
  end
  error(problem, 0)
end

--- Builds an index from a folder of clips, a CSV or a JSON lines file, or shards of an export.
---@param input string
---@param output string  NAME.mrx; replaced only when the new index is sealed
---@param given? table  captions, root (of shards: folder for their clips, required), source,
---   threads, deadline_s; columns: meanings of a list's columns, "path=video,text=caption";
---   "-=views" leaves one out; escape: of CSV, the character that escapes a quote, "\\"; part and
---   parts: only this part of the input; resume: continue an ingest of the same input that was
---   killed or stopped, if there is one; kept(rows, total, problem): called when progress raises
---   problem, or a disk does: finished rows of the input are kept for resume; commit_rows: the most
---   rows that a kill loses; isolated (true): scan in processes, so that a decoder that crashes
---   costs one file
---@param progress? fun(p: table)  called several times a second with {listed, total, done, written,
---   refused, resumed, finished}; total is 0 while the list is read, and listed counts its rows
---@return table result  {total, written, refused, without_caption, resumed, notes: files that were
---   skipped in a folder, a line each}
function data.ingest(input, output, given, progress)
  local o = { isolated = true }
  for key, value in pairs(given or {}) do
    o[key] = value
  end
  foreign.check(input)
  if shards.is(input) then
    if not o.root then
      base.raise("MR_E_USAGE", ("%s: has shards, whose clips need a folder to be written to; try: "
        .. "--root DIR"):format(input))
    end
    local source
    input, source = shards.unpack(input, o.root, function(done)
      if progress then
        progress { listed = done, total = 0, done = 0, written = 0, refused = 0, resumed = 0 }
      end
    end)
    o.source = o.source or source
  end
  local kept = o.kept
  o.kept = nil
  local ingest <close> = core_index.ingest(input, output, o)
  local good, p = pcall(finish, ingest, progress, kept)
  if not good then
    foreign.explain(input, p)
    error(p, 0)
  end
  p.notes = {}
  for line in ingest:notes():gmatch("[^\n]+") do
    p.notes[#p.notes + 1] = line
  end
  return p
end

local Index = {}
Index.__index = Index
Index.__name = "moonreel.Index"
Index.__len = function(self) return #self.core end
Index.__close = function(self) self:close() end
Index.__tostring = function(self) return ("index %s: %d samples"):format(self.meta.path, #self) end

--- A row as a table: id, key, path, file, text, captions, frames, fps, width, height, codec, ...
---@param i integer  from 1
function Index:row(i)
  return self.core:row(i)
end

--- Closes the index; loaders made from it keep working.
function Index:close()
  self.core:close()
end

--- Opens a sealed index.
---@param path string
---@param given? table  verify: check every block of the file
---@return moonreel.Index index  #index, index:row(i), index.meta {rows, fp_order, fp_set, path,
---   roots, sources}
function data.open(path, given)
  local core = core_index.open(path, given)
  return setmetatable({ core = core, meta = core:facts() }, Index)
end

local read_loader = options.declare("data.loader", {
  { "index", "moonreel.Index", "the index of the clips; required, unless there are sources" },
  { "sources", "table", "several: {name, index, weights = {{samples, weight}, ...}, epochs, seen, "
    .. "epoch}, ...; moonreel.settings.sources makes them from settings" },
  { "bucket_config", "table", "resolution -> frames -> {probability, batch size}; required" },
  { "resolutions", "table", "more names: name -> {pixels, aspects}" },
  { "frame_interval", "integer", "frames from one used to the next", default = 1 },
  { "compat", "boolean|text", "the length test of Open-Sora 1.2: true or \"opensora-1.2\"" },
  { "draw_epochs", "integer", "epochs after which draws of samples repeat; 0: never",
    default = 0 },
  { "reference", "text", "use the buckets and order of \"opensora-1.2\" or \"opensora-2.0\"" },
  { "sizes", "text", "the reference for the sizes of 144p to 1080p; absent: as reference" },
  { "grid", "integer", "sides of 2.0 are multiples of it; absent: 16" },
  { "fps_max", "number", "of 2.0: frames of faster clips are skipped, to at most this rate; 0: "
    .. "no limit",
    default = 0 },
  { "says", "function", "(source, id): text to append to the captions of a sample" },
  { "seed", "integer", "of the order", default = 0 },
  { "threads", "integer", "of decoding; 0: one per processor", default = 0 },
  { "prefetch", "integer", "batches decoded ahead", default = 2 },
  { "epochs", "integer", "the number of epochs; 0: no end", default = 0 },
  { "state", "text", "continue from this loader:state()" },
  { "excluded", "text", "samples excluded at that state: loader:excluded()" },
  { "quarantine", "text", "path of quarantine.jsonl: read, and appended to" },
  { "seen", "text", "path of the list of trained samples that the state names" },
  { "epoch", "integer", "without a state: begin with this epoch", default = 0 },
  { "bucket_costs", "table", "resolution -> frames -> cost of a micro-batch" },
  { "virtual_ranks", "integer", "micro-batches of equal cost, drawn together; in the order of a "
    .. "reference: its ranks", default = 1 },
  { "tail", "text", "samples that do not fill a micro-batch at an epoch's end: \"short\"; "
    .. "\"carry\": first in the next one", default = "short" },
  { "deadline_s", "number", "seconds for one clip", default = 60 },
  { "isolated", "boolean", "decode in processes: a decoder that crashes costs one sample",
    default = true },
  { "allow_empty_buckets", "boolean", "skip lengths that no sample can enter, instead of "
    .. "refusing them",
    default = false },
  { "part", "integer", "of the ranks that share the order, from 0", default = 0 },
  { "parts", "integer", "ranks that share it: each decodes its own batches", default = 1 },
  { "group", "integer", "batches of a step: each rank has every parts-th of them; 0: of parts",
    default = 0 },
  { "lpt", "boolean", "the costliest batch of a group goes to the rank with the least work, "
    .. "instead of taking turns", default = false },
  { "blind", "boolean", "decode nothing: batches list their samples, but their pixels are "
    .. "undefined",
    default = false },
  { "sample_part", "integer", "decode only the samples of this part, from 1", default = 0 },
  { "sample_parts", "integer", "the number of parts; 0: all", default = 0 },
  { "node", "integer", "NUMA node for the memory of batches, from 1; 0: any", default = 0 },
  { "local_ranks", "integer", "that share this machine's memory, a quarter of which batches may "
    .. "take", default = 1 },
})

--- Starts decode threads on an index; see moonreel.data.loader.
---@param given table  index, bucket_config, ...: declared above; help(data.loader) lists them
---@return moonreel.Loader
function data.loader(given)
  local o = read_loader(given)
  if not o.index and not o.sources then
    require("moonreel.core.base").raise("MR_E_USAGE",
      "data.loader: index is missing; try: data.open(path)")
  end
  return require("moonreel.data.loader").new(o)
end

return data
