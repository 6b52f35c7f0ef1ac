--- One clip, as often as it takes: how well a small autoencoder of type dc_ae gives it back, in dB.
-- Measures; no spec runs it. Use: moonreel spec/support/overfit_full.lua [STEPS]
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ops = require "moonreel.core.op"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local regions = require "moonreel.optim.regions"

local STEPS <const>, LR <const> = tonumber(arg[1] or 1100), 3e-3
local FRAMES <const>, SIDE <const> = 4, 32

-- a red disc that goes right over a grey slope
local function clip()
  local values = {}
  for t = 0, FRAMES - 1 do
    for c = 0, 2 do
      for y = 0, SIDE - 1 do
        for x = 0, SIDE - 1 do
          local inside = (x - 10 - 2 * t) ^ 2 + (y - 16) ^ 2 < 36
          values[#values + 1] = inside and (c == 0 and 220 or 40) or 80 + 3 * y + 16 * c
        end
      end
    end
  end
  return T.from({ 1, FRAMES, 3, SIDE, SIDE }, values, "u8")
end

local pipe = pipeline.new({ losses = { perceptual_loss_weight = 0 }, model = { type = "dc_ae",
  in_channels = 3, out_channels = 3, latent_channels = 16, widths = { 16, 32, 64 },
  encoder_blocks = { 1, 1, 1 }, decoder_blocks = { 1, 1, 1 }, attention_levels = 1,
  temporal_levels = { 1 }, frames_at_once = 0 } }, "f32")
local run = E.new(E.device("cpu"), pipe.params, { regions = regions.adamw() })
run:init(3)
local step = program.new(run, pipe, { frames = FRAMES, height = SIDE, width = SIDE, batch = 1,
  text = 0 }, {})
local batch = { pixels = clip(), keys = { 1 }, seed = 5, epoch = 0, weight = { 1 } }
local update = optim.new(run, pipe.params)
for k = 1, STEPS do
  step:run(batch)
  update:step { lr = LR / 2 * (1 + math.cos(math.pi * k / STEPS)), beta1 = 0.9, beta2 = 0.99,
    eps = 1e-8, weight_decay = 0, max_norm = 1, step = k, grad_scale = 1 }
end

local g, auto = G.graph(pipe.params), pipe.autoencoder
local pixels = g:input("pixels", "u8", batch.pixels.shape)
local off = auto:reconstruct(g, auto:layers_of(pixels)) - auto:target_of(pixels)
g:output("mean", (ops.mean(off * off)))
local prog = run:compile(g:finish())
prog:set("pixels", batch.pixels)
prog:run()
print(("%d steps: %.1f dB"):format(STEPS, -10 * math.log(prog:get("mean"):item() / 4, 10)))
