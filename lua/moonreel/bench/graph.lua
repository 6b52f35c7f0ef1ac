--- The time to build a step before it can run: STDiT3 of several depths and small width, so that
-- the number of nodes matters and not their sizes. If the time per node grows with the depth, a
-- pass is slower than linear.
-- @module moonreel.bench.graph
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"
local program = require "moonreel.trainer.program"
local stdit3 = require "moonreel.models.stdit3"

local graph = {}

graph.depths = {22, 44, 101}  -- the deepest has 14,000 nodes
graph.finish_s = 0.1           -- largest time to close that one
graph.mmdit_tokens = 38400  -- tokens of the video; with 512 of text 39 k in all
graph.phases = {"forward", "backward", "finish", "compile"}

local latent, text = {1, 4, 2, 4, 4}, {1, 8, 16}
local shapes = {x = latent, x0 = latent, noise = latent, y = text, t = {1}, fps = {1}, weight = {1}}

-- seconds of each phase for a model of `depth` pairs, and the number of nodes
local function build(device, depth)
  local params = G.params("f32")
  local net = stdit3.new(params, {depth = depth, hidden_size = 64, num_heads = 2,
    caption_channels = text[3], model_max_length = text[2]})
  params:seal()
  local options, recompute = program.recomputation{grad_checkpoint = true}
  local g = G.graph(params, options)
  local run <close> = E.new(device, params, {regions = regions.gradients()})
  local io = {height = 8 * latent[4], width = 8 * latent[5], recompute = recompute}
  for name, shape in pairs(shapes) do
    io[name] = g:input(name, "f32", shape)
  end
  local loss
  local phases = {
    forward = function()
      loss = ops.flow_loss(net:forward(g, io), io.x0, io.noise, io.weight, false)
      g:output("loss", loss)
    end,
    backward = function() g:backward(loss, {}) end,
    finish = function() g:finish() end,
    compile = function() run:compile(g):close() end,
  }
  local took = {}
  for _, phase in ipairs(graph.phases) do
    local from = base.now_s()
    phases[phase]()
    took[phase] = base.now_s() - from
  end
  return took, math.tointeger(g:print():match("^graph: (%d+) nodes"))
end

--- Measures.
---@param options table  seconds: time per depth, for at least one build
---@return table[] rows  depth, nodes, and the best seconds of each phase
function graph.measure(options)
  local device <close> = E.device("cpu", options.threads or 0)
  local rows = {}
  for i, depth in ipairs(graph.depths) do
    local from = base.now_s()
    local best
    repeat
      local took, nodes = build(device, depth)
      best = best or {depth = depth, nodes = nodes}
      for phase, seconds in pairs(took) do
        best[phase] = math.min(best[phase] or math.huge, seconds)
      end
    until base.now_s() - from > options.seconds
    rows[i] = best
  end
  return rows
end

return graph
