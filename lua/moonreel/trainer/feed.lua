--- Turns a decoded batch into the inputs of a micro-step: times, caption drop, frame masks, text
-- ids. Every draw is a function of (seed, purpose, sample key, epoch), so it is the same after any
-- restart (reference dataplane 4.6).
-- @module moonreel.trainer.feed
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local conditions = require "moonreel.trainer.conditions"
local mask = require "moonreel.diffusion.mask"
local reconstruction = require "moonreel.trainer.reconstruction"
local share = require "moonreel.trainer.share"

local feed = {}

local Feed = {}
Feed.__index = Feed

--- Refuses fields that the models of a run do not use.
---@param settings table     baked
---@param pipe mr.Pipeline
function feed.check(settings, pipe)
  local s = settings
  local function refuse(field, form, ...)
    blame.raise(s, field, "MR_E_RECIPE", field .. ": " .. form, ...)
  end
  if pipe.reconstructs then
    return
  elseif s.mask_ratios and pipe.model.conditions then
    refuse("mask_ratios", "model.type = %s takes no frame masks; try: condition_config, which "
      .. "gives it frames, and mask_ratios = recipe.none", s.model.type)
  elseif s.dropout_ratio and not pipe.null_encoded then
    refuse("dropout_ratio", "model.type = %s has its own null caption; try: "
      .. "model.class_dropout_prob, and dropout_ratio = recipe.none", s.model.type)
  elseif s.dropout_ratio and s.dropout_ratio.clip and not pipe.vector then
    refuse("dropout_ratio.clip", "there is no second text encoder; try: clip.type, or "
      .. "dropout_ratio.clip = recipe.remove")
  end
end

-- Shares of dropped captions, and the names of their draws: of the text and of the vector. A recipe
-- drops the same captions for both encoders, or draws for each.
local function drops_of(settings, plain)
  if plain then
    return {text = {"caption_drop", 0}, vector = {"caption_drop", 0}}
  end
  local ratio = settings.dropout_ratio and settings:plain("dropout_ratio")
  if not ratio then
    local both = {"caption_drop", settings.model.class_dropout_prob or 0}
    return {text = both, vector = both}
  end
  return {text = {"drop_t5", ratio.t5 or 0}, vector = {"drop_clip", ratio.clip or 0}}
end

--- Makes the feed of a run.
---@param settings table     baked recipe
---@param pipe mr.Pipeline
---@param from table|nil      codec: a separate autoencoder; latents, text: the mr.Cache from which
---   these are read instead; plain: no caption is dropped and no frame is given; mesh: the ranks
---   that share batches, one of which decodes them
---@return mr.Feed
function feed.new(settings, pipe, from)
  if pipe.reconstructs then
    return reconstruction.feed(settings, pipe, from and from.mesh)
  end
  from = from or {}
  local masked = settings.mask_ratios and not from.plain
  local visual = conditions.new(settings, pipe, from)
  return setmetatable({
    settings = settings, seed = settings.seed, pipe = pipe, from = from,
    group = from.mesh and from.mesh.group or nil,
    compat = settings.compat ~= nil,
    guidance = pipe:takes("guidance") and settings.model.guidance or nil,
    drops = drops_of(settings, from.plain), conditions = visual,
    -- the reference has this field but never fills its masks
    bare = visual and settings.no_i2v_ref_loss and not settings.compat and not from.plain,
    masks = masked and mask.from_map(settings:plain("mask_ratios")) or nil,
  }, Feed)
end

--- The graph shape of a bucket.
---@param bucket table  frames, height, width, batch
function Feed:shape(bucket)
  return {frames = bucket.frames, height = bucket.height, width = bucket.width,
    batch = bucket.batch,
    text = self.pipe.text.max_length, masked = self.masks ~= nil or self.bare or false}
end

-- a function that encodes a batch into an input of a program, clip by clip, each with the draws of
-- its sample
local function encoder(self, batch, shape, pixels)
  return function(prog, input)
    for b = 1, shape.batch do
      local clip = pixels:slice(0, b - 1, b):reshape{shape.frames, 3, shape.height, shape.width}
      self.from.codec:encode_into(clip, self.from.codec:noise(shape.frames, shape.height,
        shape.width, self.seed, batch.keys[b], batch.drawn), prog, input, b - 1)
    end
  end
end

-- Clean latents of a batch, clip by clip, each with the draws of its sample. Ranks that share the
-- batch each encode a part of it, or share each clip.
local function latents_of(self, batch, shape, pixels)
  local size = self.pipe.autoencoder:latent(shape.frames, shape.height, shape.width)
  local x0 = T.new("f32", {shape.batch, table.unpack(size)})
  local first, last, rows = share.of(not self.from.codec:shared() and self.group, shape.batch)
  for b = first, last do
    local clip = pixels:slice(0, b - 1, b):reshape{shape.frames, 3, shape.height, shape.width}
    local noise = self.from.codec:noise(shape.frames, shape.height, shape.width, self.seed,
      batch.keys[b], batch.drawn)
    x0:slice(0, b - 1, b):copy_from(self.from.codec:encode(clip, noise):reshape{1,
      table.unpack(size)})
  end
  return rows and self.group:all_gather(x0:slice(0, first - 1, last):clone(), {rows = rows}) or x0
end

-- The ranks that each encode a part of a batch's captions. Ranks that share the layers of the
-- encoder do so together.
local function readers_of(self)
  local text = self.pipe.text
  if text.split and text.split.ranks > 1 then
    return self.from.mesh.tokens
  end
  return text.apart and self.group
end

-- The inputs or results of the text encoder. If its weights are separate, each of the ranks that
-- share a batch encodes a part of the captions.
local function tokens_of(self, captions, dropped, vectorless)
  local pipe, group = self.pipe, readers_of(self)
  local first, last, rows = share.of(group, #captions)
  if not rows then
    return pipe:tokens(captions, dropped, vectorless)
  end
  -- a rank without a caption needs the shape of the other ranks' features
  local from, to = math.min(first, #captions), math.max(first, last)
  local function some(list) return table.move(list, from, to, 1, {}) end
  local mine = pipe:tokens(some(captions), some(dropped), some(vectorless))
  for name, value in pairs(mine) do
    mine[name] = value:slice(0, 0, last - first + 1):clone()
  end
  local names = {}
  for name in pairs(mine) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    mine[name] = group:all_gather(mine[name], {rows = rows})
  end
  return mine
end

-- which captions of a batch are dropped
local function dropped(row, seed, batch)
  local list = {}
  for b, key in ipairs(batch.keys) do
    list[b] = base.random_uniform(seed, row[1], key, batch.epoch) < row[2]
  end
  return list
end

--- Everything that a micro-step needs for one decoded batch. The pixels stay in the loader's
-- memory.
---@param batch table  from the loader
---@param shape table  from Feed:shape
---@param step integer|nil  steps that the run has made; nil: the times are set later
---@return table       for Step:start of moonreel.trainer.program; train_shift: the factor that
---   shifts its times, if it changes with the steps
function Feed:prepare(batch, shape, step)
  local B, seed, epoch = shape.batch, self.seed, batch.epoch
  local latent = self.pipe.autoencoder:latent(shape.frames, shape.height, shape.width)
  local size = {frames = shape.frames, height = shape.height, width = shape.width, latent = latent}
  local out = {seed = seed, epoch = epoch, keys = batch.keys, fps = batch.fps,
    guidance = self.guidance, t = {}, mask = self.masks and {} or nil}
  out.drop = dropped(self.drops.text, seed, batch)
  local vectorless = dropped(self.drops.vector, seed, batch)
  out.tokens = self.from.text
    and self.from.text:batch_tokens(batch, self.pipe, out.drop, vectorless)
    or tokens_of(self, batch.captions, out.drop, vectorless)
  local len = out.tokens.len:totable()
  for b = 1, B do
    local key = batch.keys[b]
    out.t[b], out.train_shift = self.pipe.flow.draw(self.settings, self.pipe, size, seed, key,
      epoch, step or 0)
    -- the null caption has all its tokens; the reference cuts it to the length of the caption
    if out.drop[b] and not (self.compat or self.pipe.null_encoded) then
      len[b] = shape.text
    end
    if self.masks then
      table.move(mask.draw(self.masks, latent[2], mask.draws(seed, key, epoch)),
        1, latent[2], #out.mask + 1, out.mask)
    end
  end
  out.tokens.len = T.from({B}, len, "i32")
  if self.from.latents then
    out.x0, out.weight = self.from.latents:batch_latents(batch, shape, latent)
    out.given = self.conditions and self.conditions:prepare(batch, shape, latent)
    out.mask = self.bare and conditions.counted(out.given) or out.mask
    return out
  end
  local pixels
  pixels, out.weight = share.decoded(self.group, batch, shape)
  out.given = self.conditions and self.conditions:prepare(batch, shape, latent, pixels)
  out.mask = self.bare and conditions.counted(out.given) or out.mask
  if self.from.codec then
    if self.group then
      out.x0 = latents_of(self, batch, shape, pixels)
    else
      out.encode = encoder(self, batch, shape, pixels)
    end
  else
    out.pixels = pixels
  end
  return out
end

return feed
