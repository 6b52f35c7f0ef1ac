--- Writes folders of tiny random weights: `moonreel datasets/demo/build_weights.lua OUT [SEED]`
-- makes OUT/vae, which `vae.from_pretrained` takes.
package.path = (arg[0]:match("^(.*/)") or "./") .. "../../?.lua;" .. package.path
local base = require "moonreel.core.base"
local weights = require "datasets.demo.weights"

local out, seed = arg[1], math.tointeger(tonumber(arg[2] or 1))
if not out or not seed then
  base.raise("MR_E_USAGE", "build_weights.lua: expected OUT [SEED], a folder and an integer")
end

weights.vae(out .. "/vae", seed)
print(out .. "/vae")
