--- Writes tiny random weights of all models that recipes/tiny/opensora20 names:
-- `moonreel datasets/demo/build_weights20.lua OUT [SEED]` makes OUT/flux.safetensors (an image
-- model in Flux's form), OUT/hunyuan.safetensors, OUT/dc_ae.safetensors, OUT/t5 and OUT/clip.
package.path = (arg[0]:match("^(.*/)") or "./") .. "../../?.lua;" .. package.path
local base = require "moonreel.core.base"
local weights = require "datasets.demo.weights"

local out, seed = arg[1], math.tointeger(tonumber(arg[2] or 1))
if not out or not seed then
  base.raise("MR_E_USAGE", "build_weights20.lua: expected OUT [SEED], a folder and an integer")
end
weights.opensora20(out, seed)
print(out)
