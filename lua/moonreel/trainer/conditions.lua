--- Visual conditions of a batch: drawn for each sample, encoded from its own pixels, and
-- concatenated with the latents that a model learns from. A given frame is encoded separately from
-- the clip, so that it contains nothing of later frames. If the clip's own latent contains no later
-- frames, that latent is used. Ref: opensora-2.0.md 3.
-- @module moonreel.trainer.conditions
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local condition = require "moonreel.diffusion.condition"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local share = require "moonreel.trainer.share"

local conditions = {}

-- ---- settings ----

-- refuses condition_config as a whole, with the line of its first entry
local function refuse(s, form, ...)
  local path = "condition_config"
  for _, leaf in ipairs(s:leaves()) do
    path = leaf.keys[1] == "condition_config" and leaf.path or path
  end
  blame.raise(s, path, "MR_E_RECIPE", "condition_config: " .. form, ...)
end

local function check_model(s, pipe)
  local takes_one, config = pipe:takes "cond", s.condition_config
  if config and not takes_one then
    refuse(s, "model.type = %s takes no visual condition%s; try: condition_config = recipe.none",
      s.model.type, pipe.model.conditions and " with model.cond_embed = false" or "")
  elseif takes_one and not config then
    blame.raise(s, "model.cond_embed", "MR_E_RECIPE", "model.cond_embed is true and "
      .. "condition_config is not set, so no frame would be given; try: condition_config = "
      .. "{ t2v = 1 }, or model.cond_embed = false")
  end
end

local function check_autoencoder(s, auto)
  local step = condition.frames_of(auto)
  if not auto.apart and step > 1 then
    refuse(s, "vae.type = %s runs inside the step and encodes %d frames as one latent frame: "
      .. "a given frame cannot be encoded separately; try: an autoencoder with its own weights "
      .. "(vae.from_pretrained)", s.vae.type, step)
  end
end

local function check_causal(s, auto)
  local step, causal = condition.frames_of(auto)
  local given = s.is_causal_vae
  if given ~= nil and step > 1 and given ~= causal then
    blame.raise(s, "is_causal_vae", "MR_E_RECIPE", "is_causal_vae is %s, but the first latent "
      .. "frame of vae.type = %s covers %s; try: is_causal_vae = %s", given, s.vae.type,
      causal and "one frame" or ("%d frames"):format(step), causal)
  end
end

-- lengths of the clips that a recipe trains on
local function lengths_of(s)
  local list = {}
  for _, leaf in ipairs(s:leaves()) do
    local frames = leaf.keys[1] == "bucket_config" and math.tointeger(tonumber(leaf.keys[3]))
    if frames and frames > 1 then
      list[#list + 1] = { frames = frames, path = leaf.path }
    end
  end
  return list
end

-- A type for which all clips are too short would never be drawn; a clip that is too short for all
-- types cannot train.
local function check_lengths(s, auto, weights)
  local step, causal = condition.frames_of(auto)
  local longest, drawn = 0, {}
  for _, clip in ipairs(lengths_of(s)) do
    local latent = auto:latent(clip.frames, 1, 1)[2]
    local fitting = condition.fitting(weights, latent, step, causal)
    longest = math.max(longest, clip.frames)
    for _, row in ipairs(fitting) do
      drawn[row[1]] = true
    end
    if #fitting == 0 then
      blame.raise(s, clip.path, "MR_E_RECIPE", "%s: clips of %d frames are too short for all "
        .. "kinds in condition_config; try: condition_config.t2v = 1, or longer clips", clip.path,
        clip.frames)
    end
  end
  for _, row in ipairs(longest > 0 and weights or {}) do
    if not drawn[row[1]] then
      blame.raise(s, "condition_config." .. row[1], "MR_E_RECIPE", "condition_config.%s needs %d "
        .. "frames, but the longest clips of bucket_config have %d; try: longer clips, or "
        .. "condition_config.%s = recipe.remove", row[1], condition.pixels(row[1], causal), longest,
        row[1])
    end
  end
end

--- Refuses conditions that do not fit the model, the autoencoder or the clips of a recipe.
---@param settings table     baked
---@param pipe mr.Pipeline
function conditions.check(settings, pipe)
  if pipe.reconstructs then
    return
  end
  check_model(settings, pipe)
  check_causal(settings, pipe.autoencoder)
  if settings.condition_config then
    check_autoencoder(settings, pipe.autoencoder)
    local weights = condition.weights(settings:plain "condition_config")
    if #weights == 0 then
      refuse(settings, "all weights are 0; try: condition_config = { t2v = 1 }")
    end
    check_lengths(settings, pipe.autoencoder, weights)
  end
end

-- ---- drawing and encoding ----

local Conditions = {}
Conditions.__index = Conditions

--- Makes the conditions of a run.
---@param settings table     baked: condition_config, seed
---@param pipe mr.Pipeline
---@param from table          codec, latents, plain, mesh: as moonreel.trainer.feed takes them
---@return mr.Conditions|nil  nil if the model takes no conditions
function conditions.new(settings, pipe, from)
  if not pipe:takes "cond" then
    return nil
  end
  local auto = pipe.autoencoder
  local step, causal = condition.frames_of(auto)
  local config = not from.plain and settings.condition_config
    and settings:plain "condition_config" or { t2v = 1 }
  return setmetatable({ seed = settings.seed, auto = auto, step = step, causal = causal,
    weights = condition.weights(config), codec = from.codec, cache = from.latents,
    group = from.mesh and from.mesh.group or nil }, Conditions)
end

--- All parts that any condition of a recipe encodes of a clip, each once.
---@param latent integer  frames
---@param frames integer  in pixels
---@return mr.ConditionPart[]
function Conditions:encoded(latent, frames)
  local list, seen = {}, {}
  for _, row in ipairs(frames > 1
      and condition.fitting(self.weights, latent, self.step, self.causal) or {}) do
    for _, part in ipairs(self:parts(row[1], latent, frames)) do
      local name = ("%d %d"):format(part.first, part.frames)
      if not (part.slice or seen[name]) then
        list[#list + 1], seen[name] = part, true
      end
    end
  end
  return list
end

--- The parts that a condition gives of a clip. For an autoencoder inside the step, which encodes
-- each frame by itself, all parts are the clip's own latent.
---@param name string
---@param latent integer  frames
---@param frames integer  in pixels
---@return mr.ConditionPart[]
function Conditions:parts(name, latent, frames)
  local list = condition.parts(name, latent, frames, self.step, self.causal)
  for _, part in ipairs(list) do
    part.slice = part.slice or not self.auto.apart
  end
  return list
end

--- How often parts of clips are encoded separately, by their pixel frames.
---@param frames integer  of the clips, in pixels
---@return table<integer, number>  the mean number of such parts in a clip
function Conditions:shares(frames)
  local latent, all, shares = self.auto:latent(frames, 1, 1)[2], 0, {}
  local fitting = frames > 1
    and condition.fitting(self.weights, latent, self.step, self.causal) or {}
  for _, row in ipairs(fitting) do
    all = all + row[2]
  end
  for _, row in ipairs(fitting) do
    for _, part in ipairs(self:parts(row[1], latent, frames)) do
      shares[part.frames] = (shares[part.frames] or 0) + (part.slice and 0 or row[2] / all)
    end
  end
  return shares
end

--- The parts that are given of a sample: a function of the seed, its key and the epoch.
---@param key integer
---@param epoch integer
---@param latent integer  frames
---@param frames integer  in pixels
---@return mr.ConditionPart[]
function Conditions:drawn(key, epoch, latent, frames)
  if frames == 1 then
    return {}
  end
  local fitting = condition.fitting(self.weights, latent, self.step, self.causal)
  local u = base.random_uniform(self.seed, "condition", key, epoch)
  return self:parts(condition.draw(fitting, u), latent, frames)
end

--- Prepares the pixels and noise of a part of a clip for the codec.
---@param codec mr.Codec
---@param clip mr.Tensor           u8 [T, 3, H, W]
---@param part mr.ConditionPart
---@param draw table  seed, key, epoch of its draws, which differ from those of the clip
---@return mr.Tensor pixels, table|nil noise   for Codec:encode
function conditions.part_of(codec, clip, part, draw)
  local shape = clip.shape
  return clip:slice(0, part.first, part.first + part.frames), codec:noise(part.frames, shape[3],
    shape[4], draw.seed, draw.key, draw.epoch, part.first == 0 and "head" or "tail")
end

-- the clip of a batch's b-th sample
local function clip_of(pixels, b)
  return pixels:slice(0, b - 1, b):reshape { table.unpack(pixels.shape, 2) }
end

-- calls f(b, part) for all parts that a batch encodes separately
local function each(rows, first, last, f)
  for b = first, last do
    for _, part in ipairs(rows[b]) do
      if not part.slice then
        f(b, part)
      end
    end
  end
end

-- puts latents of given frames at their places [B, C, T, H, W]; get(b, part): f32 [C, n, H, W]
local function laid(rows, size, first, last, get)
  local z = T.new("f32", { #rows, table.unpack(size) })
  each(rows, first, last, function(b, part)
    local found = get(b, part)
    z:slice(0, b - 1, b):slice(2, part.at, part.at + part.n):copy_from(found:reshape { 1,
      table.unpack(found.shape) })
  end)
  return z
end

-- the separately encoded parts of a batch: latents, or a function that writes them into an input
local function encoded(self, out, batch, size, pixels, rows)
  local function part_of(b, part)
    return conditions.part_of(self.codec, clip_of(pixels, b), part,
      { seed = self.seed, key = batch.keys[b], epoch = batch.drawn })
  end
  if self.group then
    local first, last, counts = share.of(self.group, #rows)
    local z = laid(rows, size, first, last,
      function(b, part) return self.codec:encode(part_of(b, part)) end)
    out.z = self.group:all_gather(z:slice(0, first - 1, last):clone(), { rows = counts })
    return
  end
  local frame, frames = size[1] * size[3] * size[4], size[2]
  function out.encode(prog, input)
    local came = 0
    -- frames that no condition gives are skipped: the step does not read them
    local function skip(to)
      prog:skip(input, came * frame, (to - came) * frame)
    end
    each(rows, 1, #rows, function(b, part)
      local some, noise = part_of(b, part)
      skip((b - 1) * frames + part.at)
      self.codec:encode_into(some, noise, prog, input, b - 1, { at = part.at, frames = frames })
      came = (b - 1) * frames + part.at + part.n
    end)
    skip(#rows * frames)
  end
end

--- Prepares the conditions of a batch.
---@param batch table           from the loader
---@param shape table           frames, height, width, batch
---@param size integer[]        {C, T, H, W} of a clip's latents
---@param pixels mr.Tensor|nil  u8 [B, F, 3, H, W]; nil: latents come from a cache
---@return table                for conditions.set
function Conditions:prepare(batch, shape, size, pixels)
  local rows, given, apart = {}, {}, {}
  for b = 1, shape.batch do
    rows[b] = self:drawn(batch.keys[b], batch.epoch, size[2], shape.frames)
    local at = (b - 1) * size[2]
    for f = 1, size[2] do
      given[at + f], apart[at + f] = 0, 0
    end
    for _, part in ipairs(rows[b]) do
      for f = part.at + 1, part.at + part.n do
        given[at + f], apart[at + f] = 1, part.slice and 0 or 1
      end
    end
  end
  local dims = { shape.batch, size[2] }
  local out = { given = T.from(dims, given), apart = self.auto.apart and T.from(dims, apart,
    "bool") or nil }
  if not self.auto.apart then
    return out
  elseif pixels then
    encoded(self, out, batch, size, pixels, rows)
  else
    out.z = laid(rows, size, 1, shape.batch, function(b, part)
      return self.cache:given(batch, shape, b, part, size)
    end)
  end
  return out
end

--- Which latent frames of a batch count in a loss that leaves out given ends.
---@param given table  from Conditions:prepare
---@return boolean[]   sample after sample
function conditions.counted(given)
  local B, frames = table.unpack(given.given.shape)
  local flat, list = given.given:totable(), {}
  for b = 0, B - 1 do
    local mask = {}
    for f = 1, frames do
      mask[f] = flat[b * frames + f] == 1
    end
    table.move(condition.counted(mask), 1, frames, #list + 1, list)
  end
  return list
end

-- ---- the graph of a step ----

--- Adds the condition of a batch to a graph: the mask, then the latent under the mask.
---@param g mr.Graph
---@param auto mr.Autoencoder
---@param x0 mr.Value  f32 [B, C, T, H, W]: clean latents
---@return mr.Value    f32 [B, 1 + C, T, H, W]
function conditions.nodes(g, auto, x0)
  local B, C, frames, H, W = table.unpack(x0.shape)
  local given = g:input("given", "f32", { B, frames })
  local latent = x0 * nn.spread(given, { 0, 2 }, x0.shape)
  if auto.apart then
    local z = g:input("given_z", "f32", { B, frames, C, H, W }):permute { 0, 2, 1, 3, 4 }
    local apart = g:input("given_apart", "bool", { B, frames })
    latent = (ops.where(nn.spread(apart, { 0, 2 }, x0.shape), z, latent))
  end
  return (G.concat({ nn.spread(given, { 0, 2 }, { B, 1, frames, H, W }), latent }, 1))
end

--- Sets the condition on a program.
---@param prog mr.Program
---@param given table  from Conditions:prepare
function conditions.set(prog, given)
  prog:set("given", given.given)
  if not given.apart then
    return
  end
  prog:set("given_apart", given.apart)
  if given.encode then
    given.encode(prog, "given_z")
  else
    prog:set("given_z", given.z:permute { 0, 2, 1, 3, 4 })
  end
end

return conditions
