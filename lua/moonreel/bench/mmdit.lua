--- Plans of a training step of Open-Sora 2.0's transformer at its released size: 19 double-stream
-- and 38 single-stream blocks, width 3072, without a device. Ref: hpcaitech/Open-Sora 7ad6a96;
-- reference plan 2.
-- @module moonreel.bench.mmdit
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local families = require "moonreel.recipe.families"
local family = require "moonreel.models.mmdit"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"
local work = require "moonreel.plan.work"

local mmdit = {}

mmdit.text = 512 -- tokens of text

-- the fields of the released model that recipes leave out or that all recipes of 2.0 have
local function released()
  return nn.merged(families.of("model", "flux"):defaults(),
    { fused_qkv = false, use_liger_rope = true, cond_embed = true })
end

-- the graph of a step for a picture with one row of `tokens` patches
local function graph(params, net, batch, tokens, again)
  local c, p = net.config, net.config.patch_size
  local g = G.graph(params, { no_cheap = not again })
  local function latents(channels) return { batch, channels, 1, p, p * tokens } end
  local io = { recompute = function() return again end }
  for name, shape in pairs { x = latents(net.out_channels), cond = latents(1 + net.out_channels),
      y = { batch, mmdit.text, c.context_in_dim }, vector = { batch, 1, c.vec_in_dim } } do
    io[name] = g:input(name, "bf16", shape)
  end
  io.t = g:input("t", "f32", { batch })
  local y = (ops.cast(net:forward(g, io), { dtype = "f32" }))
  g:backward((ops.sum(y * y, { axes = { 0, 1, 2, 3, 4 } })))
  g:finish()
  return g
end

--- Plans a step on a device that does not exist.
---@param batch integer
---@param tokens integer  tokens of the video, per sample
---@param again boolean   recompute every block
---@return table  seconds (of planning), nodes, parameters, useful (operations), arena (bytes)
function mmdit.plan(batch, tokens, again)
  local from, count = base.now_s(), 0
  local params = G.params "bf16"
  local net = family.new(params, released())
  params:seal()
  for _, p in ipairs(params:list()) do
    count = count + p.count
  end
  local exec <close> = E.plan(params, { regions = regions.gradients(),
    facts = { device = "shadow", isa = "base", threads = 1, bf16 = true } })
  local step <close> = graph(params, net, batch, tokens, again)
  local prog <close> = exec:compile(step)
  local rows = prog:times()
  return { seconds = base.now_s() - from, nodes = #rows, parameters = count,
    useful = work.useful(rows), arena = prog:memory().arena }
end

return mmdit
