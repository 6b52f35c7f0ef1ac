--- What rendering the prompts of a recipe takes: a checkpoint that is opened, Euler steps, frames
-- of latents, files.
-- @module moonreel.sample.cost
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local output = require "moonreel.sample.output"
local pipeline = require "moonreel.models.pipeline"
local sample = require "moonreel.sample"
local start = require "moonreel.ckpt.start"

local cost = {}

local PIECE <const> = 1 << 22 -- weights of a file that is written to see how long reading takes

-- frames and pixels that are written to see how long files take; sides of frames are even
local FRAMES_MOST <const>, PIXELS_MOST <const>, SIDE_LEAST <const> = 8, 1 << 21, 16

-- what a function takes
local function timed(f)
  local began = base.now_s()
  f()
  return base.now_s() - began
end

-- seconds in which the autoencoder makes frames of the latents of all renderings
local function decode_s(pipe, exec, r, how)
  local auto = pipe.autoencoder
  local planned = auto.apart and codec.plan(pipe, how.planned) or codec.of(auto, pipe.params, exec)
  local seconds = 0
  for _, row in ipairs(planned:decoders(r.frames, r.height, r.width)) do
    seconds = seconds + row.runs * how.seconds(row.prog)
  end
  planned:close()
  return seconds * #r.items * r.loop
end

-- parameters of a pipeline, cut to PIECE elements in all, and the share that these are
local function piece_of(pipe)
  local list, rows, taken, all = {}, {}, 0, 0
  for _, p in ipairs(pipe.params:list()) do
    local n = math.min(p.count, PIECE - taken)
    taken, all = taken + n, all + p.count
    if n > 0 then
      list[#list + 1] = { name = p.name, shape = { n }, frozen = p.frozen }
      rows[#rows + 1] = { name = p.name, dtype = "f32", shape = { n }, ptr = ("\0"):rep(4 * n),
        bytes = 4 * n }
    end
  end
  return list, rows, taken / all
end

-- Seconds in which this host opens a checkpoint: its settings, all of its bytes for their hashes,
-- its weights. Bytes take as long as those of a small file.
local function open_s(settings, pipe, saved_bytes)
  local text = settings:to_json()
  local seconds = timed(function()
    pipeline.of(require("moonreel.settings").from_json(text), pipe.dtype)
  end)
  local list, rows, share = piece_of(pipe)
  local file <close> = setmetatable({ path = os.tmpname() }, { __close = function(self)
    os.remove(self.path)
  end })
  ckpt.write(file.path, rows)
  local bytes
  local hash_s = timed(function()
    bytes = base.read_file(file.path)
    base.hash128(bytes)
  end)
  return seconds + hash_s / #bytes * saved_bytes + timed(function()
    local source <close> = ckpt.open(file.path)
    start.check_sizes(source, pipe.maps)
    start.read(source, list, { maps = pipe.maps }, function(_, t)
      t:to(pipe.dtype):close()
    end)
  end) / share
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

-- Seconds in which this host writes the files of all renderings: by some frames, or strips of them.
-- The first file of a process finds the encoder, too.
local function files_s(r, fresh)
  local stem, n = os.tmpname(), math.min(r.frames, FRAMES_MOST)
  local strip = math.max(SIDE_LEAST, PIXELS_MOST // (n * r.width) // 2 * 2)
  local height = math.min(r.height, strip)
  local pixels <close> = moving(n, height, r.width)
  local function write()
    local file <close> = setmetatable({ writer = output.file(stem, { prompt = "", seed = 0 }, 8) },
      { __close = function(self)
        self.writer:close()
        for _, ending in ipairs { "", ".png", ".mp4" } do
          os.remove(stem .. ending)
        end
      end })
    file.writer:write(pixels)
    file.writer:finish()
  end
  local first, each = timed(write), timed(write)
  return each * (r.frames / n) * (r.height / height) * #r.items * r.loop
    + (fresh and math.max(0, first - each) or 0)
end

--- What a recipe's own renderings take.
---@param settings table    baked
---@param pipe mr.Pipeline  its models
---@param exec mr.Exec      of E.plan
---@param how table         seconds: fun(prog) of one run of a program; planned: facts and rates as
---   E.plan takes them; here: this host renders, so that what only it can tell counts, too: opening
---   a checkpoint of `saved_bytes`, files, the time in which the programs are made, and what is
---   done once in a process, where it is `fresh`
---@return number seconds
---@return integer clips
function cost.of(settings, pipe, exec, how)
  local began, here = base.now_s(), how.here
  local step, r = sample.programs(settings, pipe, exec)
  local seconds = step.runs * how.seconds(step.prog) + decode_s(pipe, exec, r, how)
  if here then
    -- memory is collected behind each batch
    seconds = seconds + base.now_s() - began + step.runs // r.steps * timed(collectgarbage)
      + open_s(settings, pipe, here.saved_bytes) + files_s(r, here.fresh)
  end
  step.prog:close()
  return seconds, #r.items
end

return cost
