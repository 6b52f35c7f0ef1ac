--- Writes folders of tiny random weights: `moonreel datasets/demo/build_weights.lua OUT [SEED]`
-- makes OUT/vae, OUT/t5 and OUT/clip, which `from_pretrained` of vae, text_encoder and clip takes;
-- with OUT/t5-v1_1-xxl (or another size), OUT/OpenSora-VAE-v1.2 or OUT/OpenSora-STDiT-v3 the
-- released model of true shapes, zeros over a hole in the file.
package.path = (arg[0]:match("^(.*/)") or "./") .. "../../?.lua;" .. package.path
local base = require "moonreel.core.base"
local weights = require "datasets.demo.weights"

local out, seed = arg[1], math.tointeger(tonumber(arg[2] or 1))
if not out or not seed then
  base.raise("MR_E_USAGE", "build_weights.lua: expected OUT [SEED], a folder and an integer")
end

if weights.hole(out) then
  print(out)
  return
end
weights.vae(out .. "/vae", seed)
weights.t5(out .. "/t5", seed)
weights.clip(out .. "/clip", seed)
print(out .. "/vae\n" .. out .. "/t5\n" .. out .. "/clip")
