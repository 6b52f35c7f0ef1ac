--- The numbers of frames that an autoencoder accepts: "any", or forms as "4n+1", "4n or 1", "1".
-- @module moonreel.codec.lengths
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local forms_of = require "moonreel.models.frames"

local lengths = {}

--- Does a rule allow a number of frames?
---@param rule string      as moonreel.models.frames reads it
---@param frames integer
---@return boolean
function lengths.fits(rule, frames)
  for _, form in ipairs(forms_of(rule)) do
    local more = frames - form.first
    if frames > 0 and (more == 0 or form.step and more > 0 and more % form.step == 0) then
      return true
    end
  end
  return false
end

-- the nearest allowed number
local function nearest(rule, frames)
  for off = 1, frames - 1 do
    for _, other in ipairs { frames - off, frames + off } do
      if lengths.fits(rule, other) then
        return other
      end
    end
  end
  return 1
end

--- Says why an autoencoder does not accept a number of frames.
---@param auto mr.Autoencoder  lengths: its rule; nil: any
---@param frames integer
---@return string|nil  nil: it accepts the number
function lengths.problem(auto, frames)
  local rule = auto.lengths or "any"
  return not lengths.fits(rule, frames)
    and ("a clip of %d frames: this autoencoder needs %s frames; try: %d frames"):format(frames,
    rule,
      nearest(rule, frames)) or nil
end

--- Refuses a number of frames that an autoencoder does not accept.
---@param auto mr.Autoencoder
---@param frames integer
function lengths.check(auto, frames)
  local problem = lengths.problem(auto, frames)
  if problem then
    base.raise("MR_E_SHAPE", problem)
  end
end

-- the largest share that a draw gives to a bucket
local function share(value)
  local p = type(value) == "table" and value[1] or 0
  return type(p) == "table" and math.min(p[1] or 0, p[2] or 0) or p
end

--- Refuses buckets whose clips an autoencoder does not accept; errors name the lines of the
-- buckets.
---@param settings table       baked
---@param auto mr.Autoencoder  autoencoder of these settings
function lengths.check_buckets(settings, auto)
  local rule = auto.lengths or "any"
  for _, leaf in ipairs(settings:leaves()) do
    local frames = leaf.keys[1] == "bucket_config" and share(leaf.value) > 0
      and math.tointeger(tonumber(leaf.keys[3]))
    if frames and not lengths.fits(rule, frames) then
      local record = settings.vae.type and "vae" or "model"
      blame.raise(settings, leaf.path, "MR_E_RECIPE", "%s: clips have %d frames, but %s.type = "
        .. "%s needs %s; try: %d", leaf.path, frames, record, settings[record].type, rule,
        nearest(rule, frames))
    end
  end
end

return lengths
