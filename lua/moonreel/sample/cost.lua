--- Predicts the cost of rendering the prompts of a recipe: opening the checkpoint, Euler steps,
-- decoding of latents, writing of files.
-- @module moonreel.sample.cost
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local codec = require "moonreel.codec"
local fill = require "moonreel.ckpt.fill"
local output = require "moonreel.sample.output"
local pipeline = require "moonreel.models.pipeline"
local prompts = require "moonreel.sample.prompts"
local sample = require "moonreel.sample"
local start = require "moonreel.ckpt.start"
local temporary = require "moonreel.data.temporary"

local cost = {}

-- elements of the weights in a test checkpoint, which is made to time the opening of one
local PIECE <const> = 1 << 21
local KINDS <const> = { "", "master.", "ema.", "adam_m.", "adam_v." }

-- frames and pixels that are written to time files; sides of frames are even
local FRAMES_MOST <const>, PIXELS_MOST <const>, SIDE_LEAST <const> = 8, 1 << 21, 16

-- seconds of a function, by the clock of the prediction
local function timed(here, f)
  local began = here.clock()
  f()
  return here.clock() - began
end

-- seconds of a function in a process that renders: a separate process runs it for the first time,
-- which takes longer
local function timed_as(here, f)
  local first = timed(here, f)
  return here.fresh and first or timed(here, f)
end

-- seconds in which the autoencoder decodes the latents of all renderings
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

-- Parameters like those of a pipeline, cut to PIECE elements in all, the rows that a checkpoint has
-- for them, and their share of the whole.
local function piece_of(pipe)
  local params, rows, taken, all = G.params(pipe.dtype), {}, 0, 0
  for _, p in ipairs(pipe.params:list()) do
    local n = math.min(p.count, PIECE - taken)
    taken, all = taken + n, all + p.count
    if n > 0 then
      params:add { name = p.name, shape = { n }, init = { kind = "zeros" }, frozen = p.frozen }
      local zeros = ("\0"):rep(4 * n)
      for _, prefix in ipairs(p.frozen and { "" } or KINDS) do
        rows[#rows + 1] = { name = prefix .. p.name, dtype = "f32", shape = { n }, ptr = zeros,
          bytes = 4 * n }
      end
    end
  end
  return params:seal(), rows, taken / all
end

-- saves a checkpoint with these rows
local function save(dir, rows)
  local saver <close> = ckpt.saver(dir)
  saver:save { step = 1, tensors = rows, wait = true, meta = { recipe_hash = "",
    dataset_fingerprint = "", sampler = "", seed = 0, machine = { isa = "", threads = 1,
    libraries = {} } } }
  saver:wait()
  return ckpt.dir(dir, 1)
end

-- Seconds in which this host opens a checkpoint: its settings, all of its bytes for their hashes,
-- its weights. The time per byte is that of a small checkpoint.
local function open_s(settings, pipe, here)
  local text, params, rows, share = settings:to_json(), piece_of(pipe)
  local dir <close> = temporary.folder()
  local path = save(dir.path, rows)
  local source <close> = ckpt.open(path)
  local device <close> = E.device("cpu", 1)
  return timed_as(here, function()
    pipeline.of(require("moonreel.settings").from_json(text), pipe.dtype)
  end) + timed_as(here, function()
    source:verify()
  end) / source.bytes * here.saved_bytes + timed_as(here, function()
    local again <close> = ckpt.open(path)
    start.check_sizes(again, pipe.maps)
    local exec <close> = E.new(device, params, {})
    fill.weights(exec, params, again, { maps = pipe.maps, average = true })
  end) / share
end

-- frames [n, 3, H, W] of a moving slope
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

-- Seconds in which this host writes the files of all renderings, from some frames or strips of
-- them. The first file of a process also loads the encoder.
local function files_s(r, here)
  local dir <close>, n = temporary.folder(), math.min(r.frames, FRAMES_MOST)
  local strip = math.max(SIDE_LEAST, PIXELS_MOST // (n * r.width) // 2 * 2)
  local height = math.min(r.height, strip)
  local pixels <close> = moving(n, height, r.width)
  local function write()
    local file <close> = output.file(dir.path .. "/clip", { prompt = "", seed = 0 }, 8)
    file:write(pixels)
    file:finish()
  end
  local first, each = timed(here, write), timed(here, write)
  return each * (r.frames / n) * (r.height / height) * #r.items * r.loop
    + (here.fresh and math.max(0, first - each) or 0)
end

--- Pixels per second that a core of this host writes to a clip file, from a small one.
---@return number
function cost.encode_rate()
  local side = math.tointeger((PIXELS_MOST // FRAMES_MOST) ^ 0.5 // 1)
  return FRAMES_MOST * side * side / files_s({ frames = FRAMES_MOST, height = side, width = side,
    items = { 1 }, loop = 1 }, { clock = base.now_s })
end

--- The cost of the programs for a recipe's own renderings.
---@param settings table    baked
---@param pipe mr.Pipeline  its models
---@param exec mr.Exec      from E.plan
---@param how table         seconds: fun(prog), for one run of a program; planned: facts and rates
---   for E.plan
---@return number seconds
---@return integer clips
function cost.programs(settings, pipe, exec, how)
  local step, r = sample.programs(settings, pipe, exec)
  local seconds = step.runs * how.seconds(step.prog) + decode_s(pipe, exec, r, how)
  step.prog:close()
  return seconds, #r.items
end

--- The cost of the work around the programs, which only the rendering host can measure: opening a
-- checkpoint, making programs, collecting garbage after each batch, writing files.
---@param settings table    baked
---@param pipe mr.Pipeline  its models
---@param exec mr.Exec      from E.plan
---@param here table        saved_bytes; clock: fun(), the time to measure; fresh: a separate
---   process renders
---@return number seconds
function cost.around(settings, pipe, exec, here)
  local step, r
  local made_s = timed_as(here, function() step, r = sample.programs(settings, pipe, exec) end)
  return made_s + step.runs // r.steps * timed_as(here, collectgarbage)
    + open_s(settings, pipe, here) + files_s(r, here)
end

--- Are all networks of a recipe in its checkpoints?
---@param pipe mr.Pipeline
---@return boolean
function cost.is_whole(pipe) return not pipe.autoencoder.apart and #pipe:texts_apart() == 0 end

--- The full cost of renderings, measured by making them with models without weights.
---@param settings table    baked
---@param pipe mr.Pipeline  its models, whole
---@param device mr.Device
---@param here table        as for cost.around
---@return number seconds
function cost.whole(settings, pipe, device, here)
  local options = prompts.options(prompts.read(nil, settings).rows)
  local exec <close> = E.new(device, pipe.params, {})
  local dir <close> = temporary.folder()
  function options.sink(item, asked)
    return output.file(("%s/%d-%d"):format(dir.path, item.index, item.number), item, asked.save_fps)
  end
  return open_s(settings, pipe, here) + timed_as(here, function()
    sample.bare(settings, pipe, exec, device):render(options)
  end)
end

return cost
