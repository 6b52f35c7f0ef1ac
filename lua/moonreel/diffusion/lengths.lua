--- Lengths that Open-Sora 1.2 cannot train: for the timestep transform it counts five latent frames
-- for each whole 17 frames, so a shorter video has none, every t of it becomes 0, and t = 1000
-- becomes NaN. Ref: opensora-1.2.md 2.
-- @module moonreel.diffusion.lengths
local lengths = {}

local BLOCK, LATENT = 17, 5

--- Latent frames of a video, as the reference counts them.
---@param frames number  of pixels
---@return number
function lengths.counted(frames) return frames // BLOCK * LATENT end

--- Why no time of clips of this length moves, or nil.
---@param given table     compat, and of the scheduler use_timestep_transform and shift
---@param frames integer  of pixels
---@return string|nil
function lengths.lost(given, frames)
  if not given.compat or not given.use_timestep_transform or given.shift or frames == 1
      or lengths.counted(frames) > 0 then
    return nil
  end
  return ("compat = %q with scheduler.use_timestep_transform counts %d frames as none, so each t "
    .. "is 0 and renderings are black; expected 1 frame, or %d and more; try: compat = none, or "
    .. "scheduler.shift = 1"):format(given.compat, frames, BLOCK)
end

return lengths
