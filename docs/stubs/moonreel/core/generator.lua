---@meta moonreel.core.generator
-- Made from the rows of the bindings: moonreel help stubs DIR

--- Generators of the reference implementations; use moonreel.data.generators.
---@class moonreel.core.generator
local generator = {}

--- As torch's CPU generator after manual_seed.
---@param seed integer
---@return mr.Twister
function generator.torch(seed) end

--- As Python's random after seed, which uses the absolute value.
---@param seed integer
---@return mr.Twister
function generator.python(seed) end

--- As numpy.random.default_rng.
---@param seed integer
---@return mr.Pcg64
function generator.numpy(seed) end

return generator
