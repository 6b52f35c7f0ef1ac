--- What rendering the prompts of a recipe takes: Euler steps, frames of latents, files.
-- @module moonreel.sample.cost
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local output = require "moonreel.sample.output"
local sample = require "moonreel.sample"

local cost = {}

-- frames and pixels that are written to see how long files take; sides of frames are even
local FRAMES_MOST <const>, PIXELS_MOST <const>, SIDE_LEAST <const> = 8, 1 << 21, 16

-- seconds in which the autoencoder makes frames of the latents of all renderings
local function decode_s(pipe, r, how)
  if not pipe.autoencoder.apart then
    return 0
  end
  local planned <close> = codec.plan(pipe, how.planned)
  local seconds = 0
  for _, row in ipairs(planned:decoders(r.frames, r.height, r.width)) do
    seconds = seconds + row.runs * how.seconds(row.prog)
  end
  return seconds * #r.items * r.loop
end

-- frames [n, 3, H, W] of a slope that moves
local function moving(n, height, width)
  local slope, rows = {}, {}
  for x = 0, 2 * width - 1 do
    slope[x + 1] = string.char(255 * (x % width) // width)
  end
  slope = table.concat(slope)
  for i = 0, 3 * n * height - 1 do
    local shift = (i + i // (3 * height)) % width
    rows[i + 1] = slope:sub(1 + shift, width + shift)
  end
  return T.from({ n, 3, height, width }, table.concat(rows), "u8")
end

-- seconds in which this host writes the files of all renderings: by some frames, or strips of them
local function files_s(r)
  local stem, n = os.tmpname(), math.min(r.frames, FRAMES_MOST)
  local strip = math.max(SIDE_LEAST, PIXELS_MOST // (n * r.width) // 2 * 2)
  local height = math.min(r.height, strip)
  local file <close> = setmetatable({ writer = output.file(stem, { prompt = "", seed = 0 }, 8) },
    { __close = function(self)
      self.writer:close()
      for _, ending in ipairs { "", ".png", ".mp4" } do
        os.remove(stem .. ending)
      end
    end })
  local pixels <close>, began = moving(n, height, r.width), base.now_s()
  file.writer:write(pixels)
  file.writer:finish()
  return (base.now_s() - began) * (r.frames / n) * (r.height / height) * #r.items * r.loop
end

--- What a recipe's own renderings take.
---@param settings table    baked
---@param pipe mr.Pipeline  its models
---@param exec mr.Exec      of E.plan
---@param how table         seconds: fun(prog) of one run of a program; planned: facts and rates as
---   E.plan takes them; here: this host renders, so that what only it can tell counts, too: files,
---   and the time in which the programs are made
---@return number seconds
---@return integer clips
function cost.of(settings, pipe, exec, how)
  local began = base.now_s()
  local step, r = sample.programs(settings, pipe, exec)
  local seconds = (how.here and base.now_s() - began or 0) + step.runs * how.seconds(step.prog)
    + decode_s(pipe, r, how) + (how.here and files_s(r) or 0)
  step.prog:close()
  return seconds, #r.items
end

return cost
