--- Statistics for an autoencoder without learned scales: mean and deviation of its latents'
-- channels.
-- @module moonreel.trainer.statistics
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"

local statistics = {}

local BATCHES = 48

--- Measures mean and deviation of the latents' channels over the first batches.
---@param exec mr.Exec
---@param pipe mr.Pipeline  whose autoencoder has `moments` and `normalisation`
---@param loader table      at the beginning of epoch 0
---@return table measured   mean, deviation: numbers by channel
function statistics.measure(exec, pipe, loader)
  local auto, sums, squares, count = pipe.autoencoder, {}, {}, 0
  for k = 1, auto.channels do
    sums[k], squares[k] = 0, 0
  end
  local programs = {}
  for _ = 1, BATCHES do
    local batch = loader:next()
    if not batch then
      break
    end
    local dims = {batch.size, batch.frames, 3, batch.height, batch.width}
    local key = table.concat(dims, "x")
    if not programs[key] then
      local g = G.graph(pipe.params)
      local sum, square = auto:moments(g, g:input("pixels", "u8", dims))
      g:output("sum", sum)
      g:output("square", square)
      g:finish()
      programs[key] = {graph = g, prog = exec:compile(g)}
    end
    local prog = programs[key].prog
    local pointer, bytes = batch:pixels()
    prog:set("pixels", T.wrap(pointer, bytes, "u8", dims, batch))
    prog:run()
    local size = auto:latent(batch.frames, batch.height, batch.width)
    local a, b = prog:get("sum"):totable(), prog:get("square"):totable()
    for k = 1, auto.channels do
      sums[k], squares[k] = sums[k] + a[k], squares[k] + b[k]
    end
    count = count + batch.size * size[2] * size[3] * size[4]
    loader:release(batch)
  end
  local mean, deviation = auto:normalisation(sums, squares, count)
  return {mean = mean, deviation = deviation}
end

--- Sets them as frozen parameters.
---@param exec mr.Exec
---@param pipe mr.Pipeline
---@param measured table  from measure
function statistics.set(exec, pipe, measured)
  local auto = pipe.autoencoder
  local values = {[auto.mean] = measured.mean, [auto.deviation] = measured.deviation}
  for _, p in ipairs(pipe.params:list()) do
    if values[p.name] then
      exec:set_param("frozen", p.name, T.from(p.shape, values[p.name]):to(pipe.dtype))
    end
  end
end

return statistics
