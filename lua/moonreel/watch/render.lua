--- Renders a set of a checkpoint to files and metrics.
-- @module moonreel.watch.render
local base = require "moonreel.core.base"
local metric = require "moonreel.watch.metric"
local naming = require "moonreel.sample.naming"
local output = require "moonreel.sample.output"
local sample = require "moonreel.sample"

local render = {}

--- Opens the models of a checkpoint, verified and loaded.
---@param one table  checkpoint of moonreel.watch.found: path, dir
---@param how table  ema, device, threads, overrides
---@return mr.Sampler  the caller closes it
function render.open(one, how)
  return sample.open(one.path, { ema = how.ema, device = how.device, threads = how.threads,
    overrides = how.overrides, run = one.dir })
end

-- writes frames to a file, and keeps them if there are metrics
local function tee(file, keeps)
  local parts, shape = {}, nil
  return { write = function(_, pixels)
    file:write(pixels)
    if keeps then
      parts[#parts + 1], shape = pixels:bytes(), pixels.shape
    end
  end, finish = function()
    local clip = file:finish()
    if keeps then
      clip.frames_u8 = require("moonreel.core.tensor").from({ clip.frames, 3, shape[3],
        shape[4] }, table.concat(parts), "u8")
    end
    return clip
  end, close = function() file:close() end }
end

-- computes the metrics of a clip, and adds them to the clip and to `rows`
local function measure(how, clip, rows)
  local frames <close> = clip.frames_u8
  local own, why = metric.measure(how.metrics, frames, clip.prompt)
  clip.frames_u8, clip.numbers = nil, metric.means(own)
  table.move(own, 1, #own, #rows + 1, rows)
  return why
end

--- Renders a set into a folder.
---@param sampler mr.Sampler
---@param set mr.WatchSet
---@param folder string
---@param how table    metrics: of moonreel.watch.metric; progress: as sampler:render takes it
---@return table made  clips: {file, prompt, seed, frames, height, width, numbers}; scalars: name ->
---   number; failure: error of a metric that failed
function render.set(sampler, set, folder, how)
  local options, found, s = set:ask(sampler)
  sampler.defaults = s
  local names
  options.progress = how.progress
  function options.sink(item, asked)
    local stem = folder .. "/" .. names:stem(item)
    base.make_dir(stem:match "^(.*)/")
    return tee(output.file(stem, item, asked.save_fps), #how.metrics > 0)
  end
  local request = sampler:request(options)
  names = naming.new(found, s, request)
  local clips, rows, failure = {}, {}, nil
  for i, clip in ipairs(sampler:render(request)) do
    if clip.frames_u8 then
      failure = measure(how, clip, rows) or failure
    end
    clips[i] = { file = clip.path:sub(#folder + 2), prompt = clip.prompt, seed = clip.seed,
      frames = clip.frames, height = clip.height, width = clip.width, numbers = clip.numbers }
  end
  local scalars = {}
  for name, mean in pairs(metric.means(rows)) do
    scalars[("samples/%s/%s"):format(set.name, name)] = mean
  end
  return { clips = clips, scalars = scalars, failure = failure }
end

return render
