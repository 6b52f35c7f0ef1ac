--- Latents and text features of samples. The encoders compute them once, and training reads them
-- instead of running the encoders. A cache is a folder of pieces, I-of-N for each part of the
-- samples; each piece is a store (core/include/moonreel/index.h). Ref: dataplane 7.
-- @module moonreel.cache
local T = require "moonreel.core.tensor"
local about = require "moonreel.cache.about"
local base = require "moonreel.core.base"
local loader = require "moonreel.data.loader"
local store = require "moonreel.core.store"

local cache = {}

-- advice about a cache that does not fit a run
local MAKE = "try: moonreel train RECIPE job=extract, or cached = false"

--- The default path of the cache of an index.
---@param index string  NAME.mrx
---@return string       NAME.cache
function cache.path_of(index) return (index:gsub("/+$", ""):gsub("%.mrx$", "")) .. ".cache" end

--- The folder of a piece.
function cache.piece(path, part, parts) return ("%s/%d-of-%d"):format(path, part, parts) end

-- ---- keys

local LATENT, PART = ">c1i8I4I4I2I2I4", ">I4I4"

--- The key of a clip's latents. A sample is cut and drawn again in every epoch.
---@param key integer  key of the sample
---@param at table     epoch, frames, height, width, start
---@return string
function cache.latent_key(key, at)
  return string.pack(LATENT, "L", key, at.epoch, at.frames, at.height, at.width, at.start)
end

--- The key of latents of a part of a clip that is encoded separately.
---@param key integer  key of the sample
---@param at table     as for cache.latent_key
---@param part table   first, frames: pixel frames of the clip
---@return string
function cache.part_key(key, at, part)
  return "G" .. cache.latent_key(key, at):sub(2) .. string.pack(PART, part.first, part.frames)
end

--- The key of a caption's features.
---@param key integer     key of the sample
---@param caption string
---@return string
function cache.text_key(key, caption)
  return string.pack(">c1i8", "T", key) .. base.hash128(caption)
end

--- The key of a caption's vector, from the key of its features.
---@param key string
---@return string
function cache.vector_key(key) return "V" .. key:sub(2) end

--- The key of the empty caption: all samples share its features.
cache.NULL = 0

-- ---- reading

local Cache = {}
Cache.__index = Cache

-- the pieces of a folder: {part = path}, and the expected number of pieces
local function pieces_of(path)
  local found, parts, unfinished = {}, nil, nil
  for _, name in ipairs(base.exists(path .. "/.") and base.list_dir(path) or {}) do
    local i, n = name:match("^(%d+)%-of%-(%d+)$")
    if i and parts and parts ~= math.tointeger(n) then
      base.raise("MR_E_DATA", ("%s: contains parts of a cache of %d parts and of another of %s "
        .. "parts; try: remove the parts that do not belong here"):format(path, parts, n))
    elseif i then
      parts, found[math.tointeger(i)] = math.tointeger(n), path .. "/" .. name
    end
    unfinished = unfinished or name:match("^%d+%-of%-%d+%.part$")
  end
  if not parts then
    base.raise("MR_E_DATA", unfinished and ("%s/%s is not complete; try: run the command that "
      .. "makes it again, which continues where it stopped"):format(path, unfinished)
      or ("%s: contains no latents and no text features; %s"):format(path, MAKE))
  end
  for i = 1, parts do
    if not found[i] then
      base.raise("MR_E_DATA", ("%s: part %d of %d is missing; try: the same command with "
        .. "part=%d/%d"):format(path, i, parts, i, parts))
    end
  end
  return found, parts
end

local function shown(value) return value == nil and "absent" or tostring(value) end

-- checks that a piece was made with what the run needs
local function check(path, rows, want)
  for kind, wanted in pairs(want) do
    local have = rows[kind]
    if not have then
      base.raise("MR_E_DATA", ("%s contains no %s; try: make the cache with save_text_features = "
        .. "true")
        :format(path, kind))
    end
    local name = about.difference(have, wanted)
    if name then
      base.raise("MR_E_DATA", ("%s: %s made with %s = %s, but this run has %s; %s"):format(path,
        kind == "text" and "text features were" or "latents were",
        name == "model" and "a model whose hash" or name, shown(have[name]), shown(wanted[name]),
        MAKE))
    end
  end
end

-- the rest of opening; an error closes the cache
local function opened(self, f)
  local good, problem = pcall(f)
  if not good then
    self:close()
    error(problem, 0)
  end
  return self
end

--- Opens a cache for a run.
---@param path string
---@param want table     latents, text: results of cache.about.of for the kinds to read
---@param given? table   verify: check every block of the files first
---@return mr.Cache      the caller closes it; epochs: epochs with latents; unchecked: kinds whose
---   weights do not exist and so were not compared
function cache.open(path, want, given)
  local self = setmetatable({ path = path, stores = {}, unchecked = {} }, Cache)
  opened(self, function()
    local found, parts = pieces_of(path)
    self.parts = parts
    for i = 1, parts do
      self.stores[i] = store.open(found[i], given)
      local rows = about.decode(self.stores[i]:text("about"), found[i])
      check(found[i], rows, want)
      self.epochs = math.min(self.epochs or rows.epochs, rows.epochs)
      self.index = rows.index
    end
  end)
  for kind, rows in pairs(want) do
    self.unchecked[#self.unchecked + 1] = not rows.model and kind or nil
  end
  return self
end

--- Refuses a run that draws samples again in more epochs than the cache has.
---@param epochs integer  number of epochs with new draws
function Cache:check_epochs(epochs)
  if epochs > self.epochs then
    base.raise("MR_E_DATA", ("%s contains latents of %d epochs, but this run draws samples again "
      .. "in %d; try: dataset.draw_epochs = %d, which repeats them, or make the cache with "
      .. "epochs = %d")
      :format(self.path, self.epochs, epochs, self.epochs, epochs))
  end
end

-- the store that contains a sample
local function store_of(self, key)
  for i = 1, self.parts do
    if loader.in_part(key, i, self.parts) then
      return self.stores[i]
    end
  end
end

local function fail(self, what, ...)
  base.raise("MR_E_DATA", ("%s: %s; %s"):format(self.path, what:format(...), MAKE))
end

-- describes the latents of a sample that exist, when the requested ones do not
local function latents_there(held, key)
  local near = held:seek(string.pack(">c1i8", "L", key))
  if not near or #near ~= string.packsize(LATENT) then
    return nil
  end
  local _, other, epoch, frames, height, width, start = string.unpack(LATENT, near)
  return other == key and ("%dx%dx%d from frame %d on, epoch %d"):format(frames, height, width,
    start, epoch) or nil
end

--- Copies the latents of a sample.
---@param key integer
---@param at table         as for cache.latent_key
---@param into mr.Tensor   f32, dense
---@return boolean         false: the clip could not be read when the cache was made
function Cache:latents(key, at, into)
  local held = store_of(self, key)
  local bytes = held:read(cache.latent_key(key, at), into)
  if not bytes then
    fail(self, "there are no latents of sample %016x as %dx%dx%d from frame %d on, epoch %d; of "
      .. "this sample there is %s", key, at.frames, at.height, at.width, at.start, at.epoch,
      latents_there(held, key) or "nothing")
  end
  local _, room = into:ptr()
  if bytes > 0 and bytes ~= room then
    fail(self, "latents of sample %016x have %d bytes; this run expected %d", key, bytes, room)
  end
  return bytes > 0
end

--- The latents of a condition for sample b of a batch; zeros if the sample could not be read.
---@param batch table           batch of a loader
---@param shape table           frames, height, width
---@param b integer
---@param part mr.ConditionPart
---@param size integer[]        {C, t, h, w} of a clip's latents
---@return mr.Tensor            f32 [C, n, h, w]
function Cache:given(batch, shape, b, part, size)
  local z, key = T.new("f32", { size[1], part.n, size[3], size[4] }), batch.keys[b]
  if batch.weights[b] == 0 then
    return z
  end
  local bytes = store_of(self, key):read(cache.part_key(key, { epoch = batch.drawn,
    frames = shape.frames, height = shape.height, width = shape.width,
    start = batch.starts[b] }, part), z)
  if not bytes then
    fail(self, "%d frames from frame %d on of sample %016x, which condition_config needs, were not "
      .. "encoded separately from its clip", part.frames, part.first, key)
  end
  return z
end

--- Copies the features of a caption to the beginning of a row.
---@param key integer
---@param caption string
---@param into mr.Tensor  [max_length, width], dense, zeros
---@param vector boolean|nil  copy its vector instead, [1, width]
---@return integer tokens
function Cache:text(key, caption, into, vector)
  local name = cache.text_key(key, caption)
  local bytes = store_of(self, key):read(vector and cache.vector_key(name) or name, into)
  if not bytes then
    fail(self, "there are no features of the caption '%s' of sample %016x: the caption has "
      .. "changed since the cache was made, or the sample is new", base.printable(caption:sub(1,
      60)), key)
  end
  local _, room = into:ptr()
  local row = room // into.shape[1]
  if bytes > room or bytes % row ~= 0 then
    fail(self, "features of sample %016x have %d bytes; this run expected at most %d tokens of %d",
      key, bytes, into.shape[1], row)
  end
  return bytes // row
end

--- The samples that could not be read when the cache was made, as lines of quarantine.jsonl.
---@return string
function Cache:quarantine()
  local texts = {}
  for i = 1, self.parts do
    local file = cache.piece(self.path, i, self.parts) .. "/quarantine.jsonl"
    texts[i] = base.exists(file) and base.read_file(file) or ""
  end
  return table.concat(texts)
end

function Cache:close()
  for _, held in ipairs(self.stores) do
    held:close()
  end
end
Cache.__close = Cache.close

-- ---- what training reads

--- The clean latents of a batch, with weight 0 for samples that could not be read.
---@param batch table      batch of a loader
---@param shape table      frames, height, width, batch
---@param size integer[]   {C, t, h, w} of a clip's latents
---@return mr.Tensor       f32 [B, C, t, h, w]
---@return number[]        weights
function Cache:batch_latents(batch, shape, size)
  local x0, weights, good = T.new("f32", { shape.batch, table.unpack(size) }), {}, nil
  for b = 1, shape.batch do
    weights[b] = batch.weights[b]
    if weights[b] > 0 then
      local read = self:latents(batch.keys[b], { epoch = batch.drawn, frames = shape.frames,
        height = shape.height, width = shape.width, start = batch.starts[b] },
        x0:slice(0, b - 1, b))
      weights[b] = read and weights[b] or 0
      good = good or read and b
    end
  end
  for b = 1, shape.batch do
    if good and weights[b] == 0 then
      x0:slice(0, b - 1, b):copy_from(x0:slice(0, good - 1, good))
    end
  end
  return x0, weights
end

-- the rows of a batch from an encoder: y [B, L, width], and the number of tokens in use
local function rows_of(self, batch, text, nulls, vector)
  local B, len, L = #batch.weights, {}, vector and 1 or text.max_length
  local y = T.new(text.dtype, { B, L, text.width })
  for b = 1, B do
    local key, caption = batch.keys[b], batch.captions[b]
    if nulls and nulls[b] then
      key, caption = cache.NULL, ""
    end
    -- a slot without a sample has no effect
    len[b] = b > batch.n and 1 or self:text(key, caption,
      y:slice(0, b - 1, b):reshape { L, text.width }, vector)
  end
  return y, len
end

--- The features of a batch's captions, as the text encoders compute them.
---@param batch table           batch of a loader
---@param pipe mr.Pipeline      its text encoder: dtype, max_length, width; vector
---@param dropped boolean[]|nil samples whose caption is replaced by the empty caption
---@param vectorless boolean[]|nil  the same for the second encoder
---@return table                as from pipe:tokens
function Cache:batch_tokens(batch, pipe, dropped, vectorless)
  local y, len = rows_of(self, batch, pipe.text, pipe.null_encoded and dropped or nil)
  return { y = y, len = T.from({ #len }, len, "i32"),
    vector = pipe.vector and rows_of(self, batch, pipe.vector, vectorless, true) or nil }
end

-- ---- writing

local Piece = {}
Piece.__index = Piece

--- Begins a piece, or continues it.
---@param path string   folder of the cache
---@param rows table    latents, text: results of cache.about.of; epochs, part, parts, index
---@return mr.CachePiece|nil  the caller closes it; nil: it is finished already
function cache.create(path, rows)
  local folder = cache.piece(path, rows.part, rows.parts)
  local text = about.encode(rows)
  local function compare(other, where)
    if other == text then
      return
    end
    local old = about.decode(other, where)
    check(where, old, { latents = rows.latents, text = rows.text })
    base.raise("MR_E_DATA", ("%s was made with epochs = %s of index %s, but this command has "
      .. "epochs = %s of index %s; try: the old values, another folder, or remove the cache")
      :format(where, old.epochs, old.index, rows.epochs, rows.index))
  end
  if base.exists(folder) then
    local held <close> = store.open(folder)
    compare(held:text("about"), folder)
    return nil
  end
  local self = setmetatable({ path = folder, store = store.create(folder) }, Piece)
  return opened(self, function()
    local before = self.store:text("about")
    if before then
      compare(before, folder .. ".part")
    else
      self.store:commit("about", text)
    end
  end)
end

--- The file that lists samples which cannot be read; it stays in the piece.
function Piece:quarantine() return self.path .. ".part/quarantine.jsonl" end

--- Returns a text of the last commit.
function Piece:text(name) return self.store:text(name) end

--- Does a value with this key exist?
function Piece:has(key) return self.store:has(key) end

--- Adds a value: a dense tensor, or "" for a sample that cannot be read.
function Piece:put(key, value) self.store:put(key, value) end

--- The bytes that wait for a commit.
function Piece:waiting() return self.store:waiting() end

--- Writes everything that waits to the disk, together with a text.
function Piece:commit(name, text) self.store:commit(name, text) end

--- Seals the piece.
function Piece:finish()
  self.store:finish()
  self.finished = true
end

--- Closes the piece. Committed values remain; a piece without values is removed.
function Piece:close()
  if not self.closed and #self.store == 0 and not self.finished then
    base.remove_dir(self.path .. ".part")
    os.remove((self.path:gsub("/[^/]*$", "")))
  end
  self.closed = true
  self.store:close()
end
Piece.__close = Piece.close

return cache
