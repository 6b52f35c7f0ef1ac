--- Writes latents and text features of all samples to a cache, as training with the encoders would
-- compute them. After any interruption it continues from the last commit, with the same cache.
-- @module moonreel.job.extract
local E = require "moonreel.core.exec"
local about = require "moonreel.cache.about"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local cache = require "moonreel.cache"
local codec = require "moonreel.codec"
local conditions = require "moonreel.trainer.conditions"
local embed = require "moonreel.embed"
local json = require "moonreel.core.json"
local loader = require "moonreel.data.loader"
local pipeline = require "moonreel.models.pipeline"
local progress = require "moonreel.trainer.progress"
local samples = require "moonreel.trainer.samples"
local work = require "moonreel.job.work"

local extract = {}

--- Bytes after which there is a commit; a kill loses at most this work.
extract.commit_bytes = 64 << 20

-- captions that are encoded at once; marks within a commit to which a stop goes back
local CAPTIONS, MARKS = 64, 64

-- parses part = "I/N" into two numbers
local function part_of(s)
  local i, n = (s.part or "1/1"):match("^(%d+)/(%d+)$")
  i, n = math.tointeger(i), math.tointeger(n)
  if not i or i < 1 or i > n then
    blame.raise(s, "part", "MR_E_RECIPE", "part: expected I/N with I from 1 to N, got '%s'", s.part)
  end
  return i, n
end

-- ---- opening

local function check(r)
  local s = r.settings
  if pipeline.reconstructs(s) then
    blame.raise(s, "model.type", "MR_E_RECIPE", "model.type = %s is an autoencoder, but job "
      .. "= extract makes latents for a model that trains on them; try: the recipe of that model "
      .. "with vae.type = %s, or job = reconstruct", s.model.type, s.model.type)
  end
  if s.epochs == 0 then
    blame.raise(s, "epochs", "MR_E_RECIPE", "epochs = 0: latents are drawn again in every epoch; "
      .. "expected the number of epochs to extract")
  end
  -- later epochs repeat the first ones
  local repeats = s.dataset.draw_epochs
  r.epochs = repeats > 0 and math.min(repeats, s.epochs) or s.epochs
  r.part, r.parts = part_of(s)
end

local function open_models(r)
  local s = r.settings
  r.device = r:keep(blame.field(s, "device", E.device, s.device, s.threads))
  r.pipe = blame.record(s, "model", pipeline.of, s, pipeline.dtype(s, r.device))
  about.check(s, r.pipe)
  conditions.check(s, r.pipe)
  r.conditions = conditions.new(s, r.pipe, {})
  r.codec = r:keep(blame.field(s, "vae.from_pretrained", codec.new, r.pipe, nil, r.device))
  if s.save_text_features then
    r:keep(embed.open_all(s, r.pipe, r.device, true))
  end
end

-- the part of the cache, or nil if it is complete
local function open_piece(r)
  local s, dtype = r.settings, r.pipe.dtype
  r:open_index()
  r.path = s.cache or cache.path_of(r.index.meta.path)
  r.piece = blame.field(s, s.cache and "cache" or "job", cache.create, r.path, {
    part = r.part, parts = r.parts, epochs = r.epochs, index = r.index.meta.fp_set,
    latents = about.of(s, "latents", dtype),
    text = s.save_text_features and about.of(s, "text", dtype, r.pipe.text) or nil })
  return r.piece and r:keep(r.piece)
end

-- decoding continues at the last commit
local function open_loader(r)
  local at = r.piece:text("at")
  at = at and json.decode(at, r.piece.path) or { samples = 0 }
  r.samples, r.resumed, r.began_s = at.samples, at.samples, base.now_s()
  r.at, r.marked = at, 0
  r.loader = r:keep(samples.open_loader(r, { epochs = r.epochs, state = at.state,
    excluded = at.excluded, sample_part = r.part, sample_parts = r.parts,
    quarantine = r.piece:quarantine() }))
  r.total = r.loader:plan().samples * r.epochs
  if r.resumed > 0 then
    r.progress:say(("continues after %d of about %d samples"):format(r.resumed, r.total))
  end
end

-- ---- one batch

-- encodes the captions that wait
local function put_texts(r)
  local waiting = r.waiting
  if #waiting == 0 then
    return
  end
  local captions = {}
  for i, one in ipairs(waiting) do
    captions[i] = one.caption
  end
  local tokens, text = r.pipe:tokens(captions), r.pipe.text
  for i, n in ipairs(tokens.len:totable()) do
    -- if padding takes part, its features are stored, too
    local kept = text.padding == "attend" and text.max_length or n
    r.piece:put(waiting[i].key, tokens.y:slice(0, i - 1, i):reshape { text.max_length, text.width }
      :slice(0, 0, kept))
    if tokens.vector then
      r.piece:put(cache.vector_key(waiting[i].key), tokens.vector:slice(0, i - 1, i))
    end
  end
  r.waiting, r.waits, r.due = {}, {}, true
end

-- queues a caption for encoding, once
local function take_text(r, key, caption)
  local name = cache.text_key(key, caption)
  if not r.waits[name] and not r.piece:has(name) then
    r.waiting[#r.waiting + 1], r.waits[name] = { key = name, caption = caption }, true
  end
end

-- queues all captions of a sample, whichever an epoch draws, and the null caption if it is encoded
local function take_texts(r, key, id)
  local captions = r.index:row(id + 1).captions
  local said = r.loader:said(1, id)
  for _, caption in ipairs(captions[1] and captions or { "" }) do
    take_text(r, key, caption .. said)
  end
  if (r.pipe.null_encoded or r.pipe.vector) and loader.in_part(cache.NULL, r.part, r.parts) then
    take_text(r, cache.NULL, "")
  end
  if #r.waiting >= CAPTIONS then
    put_texts(r)
  end
end

-- stores the parts of a clip that conditions of the recipe encode separately
local function put_given(r, batch, b, clip, latent)
  local key = batch.keys[b]
  local at = { epoch = batch.drawn, frames = batch.frames, height = batch.height,
    width = batch.width, start = batch.starts[b] }
  for _, part in ipairs(r.conditions and r.conditions:encoded(latent, batch.frames) or {}) do
    local z = r.codec:encode(conditions.part_of(r.codec, clip, part, { seed = r.settings.seed,
      key = key, epoch = batch.drawn }))
    r.piece:put(cache.part_key(key, at, part), z:clone())
  end
end

-- stores latents of the b-th sample of a batch, or a mark that it could not be read
local function put_latents(r, batch, pixels, b)
  local key, shape = batch.keys[b], pixels.shape
  local name = cache.latent_key(key, { epoch = batch.drawn, frames = batch.frames,
    height = batch.height, width = batch.width, start = batch.starts[b] })
  if r.piece:has(name) then
    return
  end
  if batch.weights[b] == 0 then
    r.piece:put(name, "")
    return
  end
  local noise = r.codec:noise(batch.frames, batch.height, batch.width, r.settings.seed, key,
    batch.drawn)
  local clip = pixels:slice(0, b - 1, b):reshape { table.unpack(shape, 2) }
  local z = r.codec:encode(clip, noise):clone()
  put_given(r, batch, b, clip, z.shape[2])
  r.piece:put(name, z)
end

local function take(r, batch)
  local pixels = batch:tensor()
  for b = 1, batch.n do
    if loader.in_part(batch.keys[b], r.part, r.parts) then
      put_latents(r, batch, pixels, b)
      if r.settings.save_text_features then
        take_texts(r, batch.keys[b], batch.ids[b])
      end
    end
  end
end

-- Marks that all results of the batches so far are in the cache, so that a commit may say so.
-- Results of later batches that are already there are not computed again.
local function mark(r)
  put_texts(r)
  r.at = { state = r.loader:state(), excluded = r.loader:excluded(), samples = r.samples }
  r.marked, r.due = r.piece:waiting(), false
end

-- returns a batch's memory to the loader when all of it is done
local function give_back(r, batch)
  r.samples = r.samples + batch.n
  r.loader:release(batch)
  local new = r.piece:waiting() - r.marked
  if r.due or #r.waiting == 0 and new >= extract.commit_bytes // MARKS then
    mark(r)
  end
end

-- writes the cache to the disk
local function commit(r)
  r.piece:commit("at", json.encode(r.at))
  r.marked = 0
end

local function tell(r)
  local seconds = base.now_s() - r.began_s
  local rate = (r.samples - r.resumed) / seconds
  r.progress:say(("%d of about %d samples, %.1f/s, %s left"):format(r.samples, r.total, rate,
    progress.duration(math.max(0, (r.total - r.samples) / rate))))
end

-- goes through all batches
local function walk(r)
  local batches = 0
  for batch in function() return r.loader:next() end do
    take(r, batch)
    give_back(r, batch)
    batches = batches + 1
    if r.piece:waiting() >= extract.commit_bytes then
      mark(r)
      commit(r)
    end
    if batches % r.settings.log_every == 0 then
      tell(r)
    end
  end
  mark(r)
  commit(r)
end

-- makes the cache; false: it exists already
local function make(r)
  open_models(r)
  if not open_piece(r) then
    return false
  end
  open_loader(r)
  walk(r)
  return true
end

-- after a signal: keeps what is done
local function keep(r)
  if r.at then
    commit(r)
    return ("%d samples are kept; the same command continues"):format(r.at.samples)
  end
end

--- Makes a cache, or one part of it.
---@param settings table  baked
---@param given table     write
---@return integer exit code: 0, or 128 + signal after a commit
---@return table facts    path
function extract.run(settings, given)
  local r <close> = work.new(settings, given)
  r.waiting, r.waits = {}, {}
  check(r)
  local made, stop = r:until_stopped(make, keep)
  if stop then
    return stop, { path = r.path }
  elseif not made then
    r.progress:say(("%s exists already"):format(cache.piece(r.path, r.part, r.parts)))
    return 0, { path = r.path }
  end
  r.piece:finish()
  local failed = r.loader:stats().failed
  r.progress:say(("done: %s, %d samples%s"):format(cache.piece(r.path, r.part, r.parts), r.samples,
    failed > 0 and (", %d could not be read, see quarantine.jsonl in it"):format(failed) or ""))
  return 0, { path = r.path }
end

return extract
