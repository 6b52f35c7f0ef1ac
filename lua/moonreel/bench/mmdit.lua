--- A graph of the shapes of Open-Sora 2.0's transformer, out of the rows that are there: 19 blocks
-- with a stream for text and one for the video, 38 of both in one, width 3072. It learns nothing
-- (no rotation, no embeddings of its inputs); operations, bytes and parameters are those of the
-- released model. Ref: hpcaitech/Open-Sora 7ad6a96; reference plan 2.
-- @module moonreel.bench.mmdit
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local large = require "moonreel.bench.large"
local ops = require "moonreel.core.op"
local regions = require "moonreel.optim.regions"
local work = require "moonreel.plan.work"

local mmdit = {}

local WIDTH, HEADS, MLP = 3072, 24, 4 * 3072
mmdit.double, mmdit.single, mmdit.text = 19, 38, 512

--- Parameters under their released names.
---@return mr.Params
---@return integer count  of all weights
function mmdit.params()
  local params, list, count = G.params("bf16"), large.tensors()
  for _, t in ipairs(list) do
    params:add { name = t.name, shape = t.shape, init = { kind = "zeros" } }
  end
  params:seal()
  return params, count
end

-- y = W x + b of a released layer
local function linear(g, name, x)
  return (ops.linear(x, g:param(name .. ".weight"), g:param(name .. ".bias")))
end

-- n values [B, 1, C] that modulate a block
local function modulation(g, name, vec, n)
  local all = linear(g, name, (ops.silu(vec)))
  return { all:split(2, n) }
end

-- q, k and v of a stream, by head
local function heads_of(g, name, x, norm)
  local B, N = x.shape[1], x.shape[3]
  local function part(layer)
    return linear(g, name .. layer, x):reshape { B, 1, N, HEADS, WIDTH // HEADS }
  end
  local function normed(layer, scale)
    return (ops.qk_norm(part(layer), g:param(name .. norm .. scale),
      false, false))
  end
  return normed("q_proj", "query_norm.scale"), normed("k_proj", "key_norm.scale"), part
end

local function attend(g, q, k, v)
  local o, lse = ops.attention(q, k, v, false)
  g:save(o)
  g:save(lse)
  return o:reshape { q.shape[1], 1, q.shape[3], WIDTH }
end

-- a stream behind the attention: projection, then MLP
local function finish_stream(g, name, x, m, o)
  x = (ops.gated_residual(x, m[3], linear(g, name .. "attn.proj", o)))
  local y = linear(g, name .. "mlp.0", (ops.layer_norm_modulate(x, m[4], m[5])))
  return (ops.gated_residual(x, m[6], linear(g, name .. "mlp.2", (ops.gelu_tanh(y)))))
end

local function double_block(g, i, img, txt, vec)
  local streams, q, k, v = { txt, img }, {}, {}, {}
  local m = {}
  for s, side in ipairs { "txt_", "img_" } do
    local name = ("double_blocks.%d.%s"):format(i, side)
    m[s] = modulation(g, name .. "mod.lin", vec, 6)
    local part
    q[s], k[s], part = heads_of(g, name .. "attn.",
      (ops.layer_norm_modulate(streams[s], m[s][1], m[s][2])), "norm.")
    v[s] = part("v_proj")
  end
  local o = attend(g, G.concat(q, 2), G.concat(k, 2), G.concat(v, 2))
  local parts = { o:slice(2, 0, txt.shape[3]), o:slice(2, txt.shape[3], o.shape[3]) }
  for s, side in ipairs { "txt_", "img_" } do
    streams[s] = finish_stream(g, ("double_blocks.%d.%s"):format(i, side), streams[s], m[s],
      parts[s])
  end
  return streams[2], streams[1]
end

local function single_block(g, i, x, vec)
  local name = ("single_blocks.%d."):format(i)
  local m = modulation(g, name .. "modulation.lin", vec, 3)
  local inner = (ops.layer_norm_modulate(x, m[1], m[2]))
  local q, k = heads_of(g, name, inner, "norm.")
  local both = linear(g, name .. "v_mlp", inner)
  local v = both:slice(3, 0, WIDTH):reshape { x.shape[1], 1, x.shape[3], HEADS, WIDTH // HEADS }
  local y = (ops.gelu_tanh((both:slice(3, WIDTH, WIDTH + MLP))))
  return (ops.gated_residual(x, m[3], linear(g, name .. "linear2",
    G.concat({ attend(g, q, k, v), y }, 3))))
end

--- The graph of a training step on tokens that are embedded already.
---@param params mr.Params  of mmdit.params
---@param batch integer
---@param tokens integer    of the video, of one sample
---@param again boolean     is every block recomputed?
---@return mr.Graph
function mmdit.graph(params, batch, tokens, again)
  local g = G.graph(params, { no_cheap = not again })
  local img = g:input("img", "bf16", { batch, 1, tokens, WIDTH })
  local txt = g:input("txt", "bf16", { batch, 1, mmdit.text, WIDTH })
  local vec = g:input("vec", "bf16", { batch, 1, WIDTH })
  for i = 0, mmdit.double - 1 do
    img, txt = g:block(("double_blocks.%d"):format(i), again, function()
      return double_block(g, i, img, txt, vec)
    end)
  end
  local x = G.concat({ txt, img }, 2)
  for i = 0, mmdit.single - 1 do
    x = g:block(("single_blocks.%d"):format(i), again, function()
      return single_block(g, i, x, vec)
    end)
  end
  local y = (ops.cast(x, { dtype = "f32" }))
  g:backward((ops.sum(y * y, { axes = { 0, 1, 2, 3 } })))
  g:finish()
  return g
end

--- Plan a step on a device that is not there.
---@param batch integer
---@param tokens integer
---@param again boolean
---@return table  seconds (of planning), nodes, parameters, useful (operations), arena (bytes)
function mmdit.plan(batch, tokens, again)
  local from = base.now_s()
  local params, count = mmdit.params()
  local exec <close> = E.plan(params, { regions = regions.gradients(),
    facts = { device = "shadow", isa = "base", threads = 1, bf16 = true } })
  local graph <close> = mmdit.graph(params, batch, tokens, again)
  local prog <close> = exec:compile(graph)
  local rows = prog:times()
  return { seconds = base.now_s() - from, nodes = #rows, parameters = count,
    useful = work.useful(rows), arena = prog:memory().arena }
end

return mmdit
