--- What an autoencoder leaves of clips that no training has shown: how near the pixels come back,
-- and whether the measuring program still finds the colour and the direction.
-- @module datasets.demo.reconstruct
local T = require "moonreel.core.tensor"
local clips = require "datasets.demo.clips"
local codec_room = require "moonreel.codec"
local data = require "moonreel.data"
local measure = require "datasets.demo.measure"
local render = require "datasets.demo.render"
local temporary = require "moonreel.data.temporary"
local world = require "datasets.demo.world"

local reconstruct = {}

local EACH, SEED = 6, 1001 -- clips of each held-out triple, and what they are drawn from

-- mean squared error of two texts of bytes
local function squared_error(a, b)
  local sum = 0
  for i = 1, #a do
    sum = sum + (a:byte(i) - b:byte(i)) ^ 2
  end
  return sum / #a
end

-- a clip there and back, as bytes [T][3][H][W]
local function through(codec, pixels, size, key)
  local clip = T.from({ size.frames, 3, size.height, size.width }, { pixels:byte(1, -1) }, "u8")
  local noise = codec:noise(size.frames, size.height, size.width, SEED, key)
  local parts = {}
  codec:decode(codec:encode(clip, noise), size, function(pictures)
    parts[#parts + 1] = codec_room.pixels(pictures):bytes()
  end)
  return table.concat(parts)
end

-- what a file keeps of a clip: half of the rows and columns of colours
local function stored(pixels, size, id)
  local dir <close> = temporary.folder()
  local name = dir.path .. "/clip"
  return data.decode(name .. "." .. clips.store(name, pixels, size.frames, id), size)
end

local function decibels(pixels, back)
  return 10 * math.log(255 ^ 2 / squared_error(pixels, back), 10)
end

--- Encode and decode fresh clips of the held-out triples: stored as those of the training are, and
-- as they are drawn, with colours that no file has.
---@param codec mr.Codec
---@param size table   frames, height, width
---@return table result  of (how many), colour, direction (how many are right, of drawn ones), psnr
---   (dB, mean over stored clips), lowest (of one), drawn (dB, mean over drawn ones)
function reconstruct.measure(codec, size)
  local result = { of = 0, colour = 0, direction = 0, psnr = 0, lowest = math.huge, drawn = 0 }
  for i = 0, EACH * #world.held_out - 1 do
    local triple = world.held_out[i % #world.held_out + 1]
    local scene = { id = i + 1, colour = triple[1], shape = triple[2], direction = triple[3],
      background = world.backgrounds[i % #world.backgrounds + 1][1] }
    local pixels = render.frames(scene, SEED, size.frames, size.height, size.width)
    local back, kept = through(codec, pixels, size, i), stored(pixels, size, scene.id)
    local psnr = decibels(kept, through(codec, kept, size, i))
    local found = measure.find(back, size.frames, size.height, size.width) or {}
    result.of, result.psnr = result.of + 1, result.psnr + psnr
    result.drawn = result.drawn + decibels(pixels, back)
    result.lowest = math.min(result.lowest, psnr)
    result.colour = result.colour + (found.colour == scene.colour and 1 or 0)
    result.direction = result.direction + (found.direction == scene.direction and 1 or 0)
  end
  result.psnr, result.drawn = result.psnr / result.of, result.drawn / result.of
  return result
end

return reconstruct
