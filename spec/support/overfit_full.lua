--- How well a small autoencoder reconstructs a single clip after this many steps, in dB. A
-- measurement; no spec runs it. Usage: moonreel spec/support/overfit_full.lua [dc_ae|hunyuan_vae
-- [STEPS]]
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ops = require "moonreel.core.op"
local optim = require "moonreel.optim"
local pipeline = require "moonreel.models.pipeline"
local program = require "moonreel.trainer.program"
local regions = require "moonreel.optim.regions"

local TYPES <const> = {
  dc_ae = { frames = 4, lr = 3e-3, steps = 1100, fields = { widths = { 16, 32, 64 },
    encoder_blocks = { 1, 1, 1 }, decoder_blocks = { 1, 1, 1 }, attention_levels = 1,
    temporal_levels = { 1 }, frames_at_once = 0 } },
  hunyuan_vae = { frames = 5, lr = 2e-3, steps = 5000, fields = {
    block_out_channels = { 16, 32, 64, 64 }, layers_per_block = 1, norm_num_groups = 8,
    time_compression_ratio = 4, spatial_compression_ratio = 8, mid_block_add_attention = true,
    scale_factor = 1, shift_factor = 0, piece_size = 0 } },
}
local type_name <const> = arg[1] or "dc_ae"
local kind <const> = TYPES[type_name]
local STEPS <const>, WARMUP <const> = tonumber(arg[2] or kind.steps), 50
local FRAMES <const>, SIDE <const>, LATENT <const> = kind.frames, 32, 16

-- a red disc that moves right over a grey slope
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

kind.fields.type, kind.fields.latent_channels = type_name, LATENT
kind.fields.in_channels, kind.fields.out_channels = 3, 3
local pipe = pipeline.new({ losses = { perceptual_loss_weight = 0 }, model = kind.fields }, "f32")
local run = E.new(E.device("cpu"), pipe.params, { regions = regions.adamw() })
run:init(3)
local step = program.new(run, pipe, { frames = FRAMES, height = SIDE, width = SIDE, batch = 1,
  text = 0 }, {})
local batch = { pixels = clip(), keys = { 1 }, seed = 5, epoch = 0, weight = { 1 } }
local update = optim.new(run, pipe.params)
for k = 1, STEPS do
  batch.epoch = k -- its random numbers differ from step to step
  step:run(batch)
  update:step { lr = math.min(k / WARMUP, 1) * kind.lr / 2 * (1 + math.cos(math.pi * k / STEPS)),
    beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0, max_norm = 1, step = k,
    grad_scale = 1 }
end

local g, auto = G.graph(pipe.params), pipe.autoencoder
local pixels = g:input("pixels", "u8", batch.pixels.shape)
-- the means of latents that are random
local drawn = type_name == "hunyuan_vae" and { 1, 2, SIDE // 8, SIDE // 8, LATENT }
local noise = drawn and g:input("noise", "f32", drawn) or nil
local off = auto:reconstruct(g, auto:layers_of(pixels), noise) - auto:target_of(pixels)
g:output("mean", (ops.mean(off * off)))
local prog = run:compile(g:finish())
prog:set("pixels", batch.pixels)
if drawn then
  prog:set("noise", T.new("f32", drawn))
end
prog:run()
print(("%s: %d steps: %.1f dB"):format(type_name, STEPS,
  -10 * math.log(prog:get("mean"):item() / 4, 10)))
