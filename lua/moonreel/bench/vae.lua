--- A video autoencoder at its released sizes encodes and decodes a clip; Hunyuan's runs alternately
-- with AutoencoderKLHunyuanVideo of diffusers. Weights are random. diffusers by default cuts clips
-- into blended tiles; here it also processes the whole clip. Each turn is a separate process: one
-- run after a fresh start, with the peak memory of the whole process.
-- @module moonreel.bench.vae
local E = require "moonreel.core.exec"
local T = require "moonreel.core.tensor"
local apart = require "moonreel.bench.apart"
local base = require "moonreel.core.base"
local codec = require "moonreel.codec"
local core = require "moonreel.core.bench"
local families = require "moonreel.recipe.families"
local lengths = require "moonreel.codec.lengths"
local paired = require "moonreel.bench.paired"

local vae = {}

--- The default clip.
vae.clip = { frames = 17, height = 144, width = 256 }

vae.jobs = { "encode", "decode" }

--- The autoencoders, each with its field for the widths of levels; the first is the default.
vae.types = { "hunyuan_vae", "dc_ae" }
local WIDTHS <const> = { hunyuan_vae = "block_out_channels", dc_ae = "widths" }

--- The fields of a released autoencoder.
---@param narrow integer  divisor of the widths of all levels
---@param type string     one of `vae.types`
---@return table fields
---@return integer[] widths  widths of its levels
function vae.fields(narrow, type)
  local fields, widths = families.of("vae", type):defaults(), {}
  for i, channels in ipairs(fields[WIDTHS[type]]) do
    widths[i] = channels // narrow
  end
  fields[WIDTHS[type]] = widths
  return fields, widths
end

local function autoencoder(narrow, type, dtype)
  return require("moonreel.models." .. type).new(nil, (vae.fields(narrow, type)),
    { dtype = dtype })
end

--- One turn: runs a job once, after its program is compiled.
---@param job string       one of `vae.jobs`
---@param dtype string
---@param threads integer
---@param narrow integer
---@param type string      one of `vae.types`
---@param frames integer
---@param height integer
---@param width integer
---@return table  seconds; peak_bytes of this process; planned_bytes of programs and weights
function vae.turn(job, dtype, threads, narrow, type, frames, height, width)
  local auto = autoencoder(narrow, type, dtype)
  local coder <close> = codec.plan({ autoencoder = auto, dtype = dtype, config = { vae = {} } },
    E.device("cpu", threads))
  coder.part.exec:init(1)
  local planned = coder:bytes(job, frames, height, width) + coder:weight_bytes()
  local run
  if job == "encode" then
    local x = codec.pixels(T.new("f32", { frames, 3, height, width }):fill_normal(1, "x"))
    coder:encoders(frames, height, width)
    run = function() coder:encode(x) end
  else
    local z = T.new("f32", auto:latent(frames, height, width)):fill_normal(1, "z")
    coder:decoders(frames, height, width)
    run = function()
      coder:decode(z, { frames = frames, height = height, width = width }, function() end)
    end
  end
  local began = base.now_s()
  run()
  return { seconds = base.now_s() - began, peak_bytes = core.max_resident(),
    planned_bytes = planned }
end

-- makes a measure for paired.rounds; `answers` receives the results of turn()
local function measure(turn, answers)
  return function()
    answers[#answers + 1] = turn()
    return answers[#answers].seconds
  end
end

local function most(answers, key)
  local found = 0
  for _, answer in ipairs(answers) do
    found = math.max(found, answer[key])
  end
  return found
end

-- a job on both sides alternately; if the peer fails, only moonreel's, and the reason
local function job_of(job, dtype, o)
  local ours, theirs, missing = {}, {}, nil
  local function ask()
    if missing then
      return { seconds = math.huge }
    end
    local answer, reason = o.ask { job = job, dtype = dtype, threads = o.threads, isa = o.isa,
      turns = 1, seconds = 0, clip = o.clip, fields = (vae.fields(o.narrow, o.type)) }
    missing = reason
    return answer or { seconds = math.huge }
  end
  local measures = { measure(function()
    return apart("vae", "turn", job, dtype, o.threads, o.narrow, o.type, o.clip.frames,
      o.clip.height, o.clip.width)
  end, ours) }
  measures[2] = o.ask and measure(ask, theirs)
  local got = paired.rounds(measures, o.seconds)
  local row = { job = job, dtype = dtype, seconds = paired.median(got[1]), rounds = #got[1],
    peak_bytes = most(ours, "peak_bytes"), planned_bytes = ours[1].planned_bytes,
    peer_missing = missing }
  if o.ask and not missing then
    local peak, import = most(theirs, "peak_bytes"), most(theirs, "import_bytes")
    row.peer = { name = theirs[1].name, version = theirs[1].version,
      seconds = paired.median(got[2]), peak_bytes = peak, import_bytes = import }
    row.speedup = paired.ratio(got[2], got[1])
    row.memory_share, row.memory_share_net = row.peak_bytes / peak,
      row.peak_bytes / (peak - import)
  end
  return row
end

--- Measures.
---@param options table  threads, dtype (nil: f32, and bf16 if it is fast), seconds: time per job,
---   for at least three pairs; narrow: divisor of widths (nil: 1); type: one of `vae.types`; clip:
---   frames, height, width (nil: `vae.clip`)
---@param ask function|nil  ask(request) -> a turn of the peer, or nil and the reason; only for
---   Hunyuan's
---@param tell fun(what: string, row: table)  called after each measurement: "machine", "job"
---@return table  type, isa, threads, widths, clip; jobs: {job, dtype, seconds, peak_bytes,
---   planned_bytes, rounds, peer or peer_missing, speedup, memory_share, memory_share_net: without
---   the peer's imports}
function vae.measure(options, ask, tell)
  local narrow, type, clip = options.narrow or 1, options.type or vae.types[1],
    options.clip or vae.clip
  local _, widths = vae.fields(narrow, type)
  -- refuses widths and clips before it measures
  lengths.check(autoencoder(narrow, type, "f32"), clip.frames)
  ask = type == "hunyuan_vae" and ask or nil
  local device <close> = E.device("cpu", options.threads or 0)
  local facts = device:facts()
  local answer = { type = type, isa = facts.isa, threads = facts.threads, widths = widths,
    clip = clip, jobs = {} }
  tell("machine", answer)
  local o = { ask = ask, threads = facts.threads, isa = facts.isa, narrow = narrow,
    seconds = options.seconds, type = type, clip = clip }
  for _, dtype in ipairs { options.dtype or "f32", not options.dtype and facts.bf16 and "bf16"
      or nil } do
    for _, job in ipairs(vae.jobs) do
      local row = job_of(job, dtype, o)
      answer.jobs[#answer.jobs + 1] = row
      tell("job", row)
    end
  end
  return answer
end

return vae
