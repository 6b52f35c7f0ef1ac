--- Lengths of clips that Open-Sora 1.2 cannot train. For the timestep transform it counts five
-- latent frames for each whole 17 frames. A shorter video counts as 0 frames, so every time becomes
-- 0, and t = 1000 becomes NaN. Ref: opensora-1.2.md 2.
-- @module moonreel.diffusion.lengths
local lengths = {}

local BLOCK, LATENT = 17, 5

--- Latent frames of a video, as the reference counts them.
---@param frames number  pixel frames
---@return number
function lengths.counted(frames) return frames // BLOCK * LATENT end

--- The reason why all times of clips of this length become 0; nil if they do not.
---@param given table     compat, and use_timestep_transform and shift of the scheduler
---@param frames integer  pixel frames
---@return string|nil
function lengths.lost(given, frames)
  if not given.compat or not given.use_timestep_transform or given.shift or frames == 1
      or lengths.counted(frames) > 0 then
    return nil
  end
  return ("compat = %q with scheduler.use_timestep_transform counts %d frames as 0 latent "
    .. "frames, so all times would be 0 and renderings black; expected 1 frame, or at least %d; "
    .. "try: compat = none, or scheduler.shift = 1"):format(given.compat, frames, BLOCK)
end

return lengths
