--- Latent frames that are given to a rendering of Open-Sora 2.0: those of reference files at the
-- ends of the clip, by its condition. Given frames are encoded separately from the clip, so that
-- they contain nothing of other frames. Ref: opensora-2.0.md 3, 16.4.
-- @module moonreel.sample.given
local base = require "moonreel.core.base"
local condition = require "moonreel.diffusion.condition"
local references = require "moonreel.sample.references"

local given = {}

local function refuse(...)
  base.raise("MR_E_USAGE", "sampling.cond_type = " .. string.format(...))
end

-- frames and latent frames, as the autoencoder counts them or as the recipe says
local function frames_of(auto, r)
  local step, causal = condition.frames_of(auto)
  if r.causal ~= nil then
    causal = r.causal
  end
  return step, causal
end

--- The parts that a condition gives of a clip; no parts in cases in which the reference gives none.
---@param auto mr.Autoencoder
---@param r table   kind, frames, height, width, compat; causal: nil: as the autoencoder is
---@return mr.ConditionPart[]
function given.parts(auto, r)
  local step, causal = frames_of(auto, r)
  local latent = auto:latent(r.frames, r.height, r.width)[2]
  if r.compat and latent == 1 then
    return {}
  end
  local list, n = condition.parts(r.kind, latent, r.frames, step, causal), 0
  for _, part in ipairs(list) do
    n = n + part.n
  end
  if n > 0 and n >= latent then
    refuse("%s gives %d latent frames, but a clip of %d frames has only %d; try: more "
      .. "--num-frames, or --cond-type t2v", r.kind, n, r.frames, latent)
  end
  return list
end

--- Frames of a rendering that are copies of a given one: an autoencoder that is not causal makes
-- several frames of its latent frame. They are not shown.
---@param auto mr.Autoencoder
---@param r table         as in given.parts
---@return integer first, integer last
function given.copies(auto, r)
  local step, causal = frames_of(auto, r)
  local first, last = 0, 0
  if r.kind:find "^i2v" and not causal then
    for _, part in ipairs(given.parts(auto, r)) do
      if part.at == 0 then
        first = step - 1
      else
        last = step - 1
      end
    end
  end
  return first, last
end

-- the reference of a part, and the part's first frame in it
local function source_of(item, r, part)
  local tail = part.at > 0
  -- clips continue from one end of the first reference; of several pictures the last one is at the
  -- tail
  local i = tail and r.kind:find "^i2v" and #item.paths or 1
  local frames = references.frames(item.paths, i)
  if frames < part.frames then
    refuse("%s needs %d frames of a reference, but %s has %d; try: a longer one%s", r.kind,
      part.frames,
      item.paths[i], frames, r.kind:find "_easy$" and ", or --cond-type "
      .. r.kind:gsub("_easy$", "") or "")
  end
  return i, tail and frames - part.frames or 0
end

--- Latents that are given to a rendering.
---@param codec mr.Codec
---@param item table   paths: of references; seed
---@param r table      as in given.parts
---@return mr.GivenPart[]
function given.read(codec, item, r)
  local list, auto = {}, codec.auto
  local parts = given.parts(auto, r)
  if r.kind == "t2v" and #item.paths > 0 then
    refuse("t2v uses no references, but prompt '%s' has one, %s; try: --cond-type i2v_head",
      item.prompt, item.paths[1])
  elseif #parts > 0 and #item.paths == 0 then
    if r.compat then
      return list
    end
    refuse("%s needs a reference, but prompt '%s' has none; try: --ref FILE, or --cond-type t2v",
      r.kind,
      item.prompt)
  end
  for k, part in ipairs(parts) do
    local i, start = source_of(item, r, part)
    local pixels = references.pixels(item.paths, i, r, { exact = auto.apart, compat = r.compat,
      start = start, frames = part.frames })
    list[k] = { at = part.at, z = references.latents(codec, pixels, item.seed, k, 0) }
  end
  return list
end

return given
