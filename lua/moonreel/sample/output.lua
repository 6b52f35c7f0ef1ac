--- Writes the frames of a rendering: into memory, or to a file while they are rendered.
-- @module moonreel.sample.output
local base = require "moonreel.core.base"
local data = require "moonreel.data"

local output = {}

local Clip = {}
Clip.__index = Clip

-- the facts that every clip has
local function facts(item, fps)
  return {prompt = item.prompt, seed = item.seed, index = item.index, number = item.number,
    fps = fps, frames = 0}
end

--- Frames kept in memory.
---@param item table  from moonreel.sample.request
---@param r table     the request
---@return table      write(pixels), finish() -> {prompt, seed, index, number, frames, height,
---   width, fps, pixels}
function output.collect(item, r)
  return setmetatable({facts = facts(item, r.save_fps), parts = {}}, Clip)
end

-- counts frames and records their size
local function count(f, pixels)
  f.frames, f.height, f.width = f.frames + pixels.shape[1], pixels.shape[3], pixels.shape[4]
end

---@param pixels mr.Tensor  u8 [n, 3, H, W]
function Clip:write(pixels)
  count(self.facts, pixels)
  self.parts[#self.parts + 1] = pixels:bytes()
end

function Clip:finish()
  self.facts.pixels = table.concat(self.parts)
  return self.facts
end

local File = {}
File.__index = File

--- Writes frames to a file: one as PNG, several as MP4. It has to be closed; without finish() no
-- file is left.
---@param stem string  path without extension
---@param item table   as in collect
---@param fps number   of the file
---@param text string|nil  written next to it
---@return table       write(pixels), finish() -> as from collect, with path in place of pixels;
---   close()
function output.file(stem, item, fps, text)
  return setmetatable({stem = stem, facts = facts(item, fps), text = text}, File)
end

-- opens the encoder; the first frame waits, because it may be the only one
local function encoder_of(self)
  if not self.encoder then
    local f = self.facts
    self.encoder = data.encoder(self.stem .. ".mp4", {height = f.height, width = f.width,
      fps = f.fps})
    self.encoder:frame(self.first)
    self.first = nil
  end
  return self.encoder
end

---@param pixels mr.Tensor  u8 [n, 3, H, W]
function File:write(pixels)
  local bytes, before = pixels:bytes(), self.facts.frames
  count(self.facts, pixels)
  local size = 3 * self.facts.height * self.facts.width
  for i = 0, pixels.shape[1] - 1 do
    local one = bytes:sub(i * size + 1, (i + 1) * size)
    if before + i == 0 then
      self.first = one
    else
      encoder_of(self):frame(one)
    end
  end
end

function File:finish()
  local f = self.facts
  if self.encoder then
    self.encoder:finish()
    f.path = self.stem .. ".mp4"
  else
    f.path = self.stem .. ".png"
    data.png(f.path, self.first, {height = f.height, width = f.width})
  end
  if self.text then
    base.replace_file(self.stem .. ".txt", self.text)
  end
  return f
end

function File:close()
  if self.encoder then
    self.encoder:close()
  end
end

File.__close = File.close

return output
