--- Renders from a checkpoint and writes the latents of each Euler step, with all that a twin needs.
--
--   moonreel dump_sample.lua OUT CKPT [steps=20 guidance=1.5 seed=1 frames=N ema=0|1]
--
-- OUT.safetensors: z.0 (noise), z.1 ..., t.i, text.NAME, len, fps, size; w.NAME, the weights used
local T = require "moonreel.core.tensor"
local core = require "moonreel.core.ckpt"
local rflow = require "moonreel.diffusion.rflow"
local sample = require "moonreel.sample"

local out, spec, o = arg[1], arg[2], { ema = "0", seed = "1" }
for i = 3, #arg do
  local key, value = arg[i]:match "^(%w+)=(.*)$"
  o[key] = value
end
local rows = {}
local function add(name, tensor)
  local bytes = tensor:clone():bytes()
  rows[#rows + 1] = { name = name, dtype = tensor.dtype, shape = tensor.shape, ptr = bytes,
    bytes = #bytes }
end

local plain = rflow.run
function rflow.run(prog, io)
  add("z.0", io.z)
  for i, t in ipairs(io.times) do
    add("t." .. i, T.from({ #t }, t, "f64"))
  end
  return plain(prog, io)
end

local sampler <close> = sample.open(spec, { ema = o.ema == "1", threads = 1 })
local text = sampler.pipe.text
local set = getmetatable(text).__index.set
getmetatable(text).__index.set = function(self, prog, tokens)
  for name, tensor in pairs(tokens) do
    add("text." .. name, tensor)
  end
  set(self, prog, tokens)
end
for _, p in ipairs(sampler.pipe.params:list()) do
  add("w." .. p.name, sampler.exec:param(p.frozen and "frozen" or "w", p.name))
end
local clips = sampler:render { prompts = { "a red circle moving right on a black background",
    "a blue triangle moving up on a white background" },
  seeds = { math.tointeger(tonumber(o.seed)) },
  batch_size = 2, steps = o.steps and math.tointeger(tonumber(o.steps)),
  guidance = tonumber(o.guidance), frames = o.frames and math.tointeger(tonumber(o.frames)),
  watch = function(i, prog)
    add("z." .. i, prog:get "z")
  end }
local c, cfg = clips[1], tonumber(o.guidance) or sampler.settings.scheduler.cfg_scale
add("fps", T.from({ 2 }, { c.fps, c.fps }))
add("size", T.from({ 4 }, { c.frames, c.height, c.width, cfg }))
core.write(out .. ".safetensors", rows)
require("moonreel.core.base").replace_file(out .. ".json", sampler.settings:to_json())
