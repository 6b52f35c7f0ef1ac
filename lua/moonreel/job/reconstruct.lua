--- Encodes and decodes clips of the data, in the order of the index; writes them next to the
-- originals, with their PSNR.
-- @module moonreel.job.reconstruct
local E = require "moonreel.core.exec"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local check = require "moonreel.trainer.check"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local data = require "moonreel.data"
local folder = require "moonreel.sample.folder"
local json = require "moonreel.core.json"
local lengths = require "moonreel.codec.lengths"
local pipeline = require "moonreel.models.pipeline"
local printer = require "moonreel.text.table"
local samples = require "moonreel.trainer.samples"
local work = require "moonreel.job.work"

local reconstruct = {}

local HIGHEST <const> = 100 -- dB of a clip without any difference

-- opens the autoencoder of a recipe with the weights of ckpt_path
local function open_codec(r)
  local s = r.settings
  check.has_autoencoder(s)
  if not s.ckpt_path then
    blame.raise(s, "ckpt_path", "MR_E_USAGE", "ckpt_path is not set: job = reconstruct needs "
      .. "the weights of an autoencoder; try: --ckpt-path RUN, or a released file")
  end
  local source <close> = blame.field(s, "ckpt_path", ckpt.load,
    blame.field(s, "ckpt_path", ckpt.resolve, s.ckpt_path, s.outputs))
  local device = r:keep(blame.field(s, "device", E.device, s.device, s.threads))
  local pipe = blame.record(s, "model", pipeline.coder, s, pipeline.dtype(s, device), source.path)
  lengths.check_buckets(s, pipe.autoencoder)
  r.codec = r:keep(blame.field(s, "ckpt_path", codec.new, pipe, nil, device))
end

-- Mean of the squared differences of u8 clips, frame by frame: f32 values of a long clip would take
-- more memory than its program.
local function differ(a, b)
  local sum, frames = 0, a.shape[1]
  for i = 0, frames - 1 do
    local x <close> = a:slice(0, i, i + 1):to "f32"
    local y <close> = b:slice(0, i, i + 1):to "f32"
    local off <close> = x - y
    local square <close> = off * off
    sum = sum + square:mean()
  end
  return sum / frames
end

-- PSNR in dB, from a mean of squared differences of 0..255
local function psnr(mean)
  return math.min(10 * math.log(255 ^ 2 / math.max(mean, 1e-9), 10), HIGHEST)
end

-- writes frames to a file: one as PNG, several as MP4
local function write(stem, fps, pixels)
  local frames, _, height, width = table.unpack(pixels.shape)
  local path = stem .. (frames == 1 and ".png" or ".mp4")
  local write_all = frames == 1 and data.png or data.encode
  write_all(path, pixels:bytes(), { height = height, width = width,
    frames = frames > 1 and frames or nil, fps = frames > 1 and fps or nil })
  return path
end

-- encodes and decodes one clip of a batch; returns a row of the table
local function take(r, batch, b, clip)
  local key, fps = batch.keys[b], batch.fps[b] > 0 and batch.fps[b] or 1
  local z <close> = r.codec:encode(clip, r.codec:noise(batch.frames, batch.height, batch.width,
    r.settings.seed, key, 0))
  -- under compat one latent frame decodes to one frame
  local frames = math.min(batch.frames, r.codec.auto:most_frames(z.shape[2]))
  local back <close> = r.codec:decode(z, { frames = frames, height = batch.height,
    width = batch.width })
  -- a side that is not a whole number of cells comes back larger
  local shown <close> = back:slice(2, 0, batch.height):slice(3, 0, batch.width):clone()
  local stem = ("%s/%05d"):format(r.folder:path(), #r.rows + 1)
  local path = r.index:row(batch.ids[b] + 1).path
  return { path = path, frames = frames, height = batch.height, width = batch.width,
    bucket = ("%s, %d frames"):format(batch.resolution, batch.frames),
    psnr = psnr(differ(shown, clip:slice(0, 0, frames))),
    given = write(stem .. "_given", fps, clip),
    file = write(stem, fps, shown) }
end

-- goes through all clips of the index that enter a bucket, or those of the first `steps` batches
local function walk(r)
  local s = r.settings
  open_codec(r)
  r:open_index()
  r.folder = folder.new(s.sampling.save_dir)
  local loader <close> = samples.open_loader(r, { epochs = 1 }, true)
  local batches = 0
  for batch in function() return loader:next() end do
    local pixels = batch:tensor()
    for b = 1, batch.n do
      if batch.weights[b] > 0 then
        r.rows[#r.rows + 1] = take(r, batch, b,
          pixels:slice(0, b - 1, b):reshape { table.unpack(pixels.shape, 2) })
      end
    end
    loader:release(batch)
    batches = batches + 1
    if batches == s.steps then
      break
    end
  end
  return true
end

-- buckets with the number of their clips and the PSNR
local function summary(rows)
  local list, by = {}, {}
  for _, row in ipairs(rows) do
    local one = by[row.bucket]
    if not one then
      one = { bucket = row.bucket, clips = 0, sum = 0, least = math.huge }
      by[row.bucket], list[#list + 1] = one, one
    end
    one.clips, one.sum = one.clips + 1, one.sum + row.psnr
    one.mean, one.least = one.sum / one.clips, math.min(one.least, row.psnr)
  end
  return list
end

local function tell(r)
  local function dB(x) return ("%.2f"):format(x) end
  local columns = { { key = "bucket" }, { key = "clips", right = true },
    { key = "mean", title = "PSNR, dB", right = true, format = dB },
    { key = "least", right = true, format = dB } }
  for line in printer.text(columns, summary(r.rows)):gmatch "[^\n]+" do
    r.progress:say(line)
  end
end

-- lists the files, whether all clips are done or not
local function list_files(r)
  local path = r.folder:path() .. "/reconstruct.json"
  base.replace_file(path, json.encode({ weights = r.settings.ckpt_path, seed = r.settings.seed,
    index = r.index.meta.fp_set, clips = json.array(r.rows) }, { indent = 2 }) .. "\n")
  return path
end

--- Encodes and decodes the clips of dataset.data_path with ckpt_path's weights.
---@param settings table  baked; steps: batches, 0: all
---@param given table     write
---@return integer exit code
---@return table facts    rows {path, bucket, frames, height, width, psnr, given, file}; path of the
---   list
function reconstruct.run(settings, given)
  local r <close> = work.new(settings, given)
  r:refuse { "cached", "load_video_features", "load_text_features" }
  r.rows = {}
  local _, stop = r:until_stopped(walk, function()
    return #r.rows > 0 and ("%d clips are written, %s"):format(#r.rows, list_files(r)) or nil
  end)
  if stop then
    return stop, { rows = r.rows }
  elseif #r.rows == 0 then
    blame.raise(settings, "dataset.data_path", "MR_E_DATA", "no clip of %s could be read",
      r.index.meta.path)
  end
  tell(r)
  local path = list_files(r)
  r.progress:say("written: " .. path)
  return 0, { rows = r.rows, path = path }
end

return reconstruct
