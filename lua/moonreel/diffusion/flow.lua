--- The flow along which a diffusion family trains and samples: a module of this room, which the
-- family names in its `flow` (default: rectified flow).
--
-- A flow has, of one sample or one batch, with times t of 0 (clean) to flow.T (noise):
--
--     draw(settings, pipe, size, seed, key, epoch, step)    a time of training; the ratio that
--                                                           moves it, where steps change that
--     loss{x0, noise, t, weight, mask, predict, sigma_min}  nodes: loss f32 [], per_sample f32 [B],
--                                                           {x_t, pred}
--     check(settings)                                       where it has one: raises MR_E_RECIPE
--                                                           for fields of scheduler that ask for
--                                                           what the flow does not do
--
-- and of B renderings at once, of latents [B, C, T, H, W], which moonreel.sample.NAME asks for:
--
--     name                                                  what it is called
--     times(settings, pipe, size, request) -> {t, ...}      from noise down
--     step(g, {dims, predict, ...})                         nodes of an Euler step
--     run(prog, {z, times, watch, ...}) -> z                all steps of a program with these nodes
-- @module moonreel.diffusion.flow
local flow = {}

--- The time of pure noise in all flows.
flow.T = 1000

--- The flow of a family.
---@param name string|nil  name of its module
---@return table
function flow.of(name) return require(name or "moonreel.diffusion.rflow") end

return flow
