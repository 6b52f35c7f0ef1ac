--- Random graphs for specs, with everything that decides the place of a value - views, joins,
-- overlapping slices, shared and permuted weights, constants computed in setup, readers that need
-- dense values, recomputed blocks. Equal seeds give equal graphs, whatever the options.
local T = require "moonreel.core.tensor"
local G = require "moonreel.core.graph"
local ops = require "moonreel.core.op"

local random_graph = {}

--- Random numbers in 1..n from a seed: math.random is the runtime's, this one is the spec's.
local function dice(seed)
  local state = seed * 2654435769 + 97
  return function(n)
    state = state * 6364136223846793005 + 1442695040888963407
    return (state >> 33) % n + 1
  end
end

--- The parameters of all graphs: weights [4, 4], values [6, 4], one frozen of each kind.
function random_graph.params()
  local params = G.params("f32")
  for i = 1, 3 do
    params:add { name = "w" .. i, shape = { 4, 4 }, init = { kind = "xavier" } }
    params:add { name = "v" .. i, shape = { 6, 4 }, init = { kind = "normal", scale = 1 } }
  end
  params:add { name = "fw", shape = { 4, 4 }, init = { kind = "xavier" }, frozen = true }
  params:add { name = "fv", shape = { 6, 4 }, init = { kind = "normal" }, frozen = true }
  params:seal()
  return params
end

--- Ways in which a graph grows. Each function returns a value [6, 4] made from: `pick()` any value
-- so far, `w()` and `v()` parameters, `setup()` a constant; `keep(x)` offers x later on.
local kinds = {
  function(d) return ops.add(d.pick(), d.pick()) end,
  function(d) return ops.mul(d.pick(), ops.gelu_tanh(d.pick())) end,
  function(d) return ops.sub(d.pick(), d.pick()) end,
  function(d) return ops.silu(d.pick()) end,
  function(d) return ops.affine(d.pick(), { scale = 0.5, shift = 0.1 }) end,
  function(d) return ops.linear(d.pick(), d.w()) end,
  -- the same storage read in another order, together with itself and alone
  function(d) return d.pick():reshape { 4, 6 }:permute { 1, 0 }:reshape { 6, 4 } end,
  function(d) return ops.silu(d.pick():reshape { 4, 6 }:permute { 1, 0 }) end,
  function(d)
    local x = ops.silu(d.pick())
    return ops.add(x, x:reshape { 4, 6 }:permute { 1, 0 })
  end,
  function(d)
    local x = ops.silu(d.pick())
    return ops.sub(ops.affine(x, { scale = 2 }):reshape { 4, 6 }:permute { 1, 0 }, x)
  end,
  -- joins of slices, in another order, twice the same, along both axes
  function(d)
    local a, b, c = d.pick():split(0, 3)
    return G.concat({ c, ops.silu(a), b }, 0)
  end,
  function(d)
    local a, b = d.pick():split(1, 2)
    local c = d.pick():split(1, 2)
    return G.concat({ ops.mul(a, c), ops.gelu_tanh(b) }, 1)
  end,
  function(d)
    local m = ops.silu(d.pick()):slice(0, 0, 2)
    return G.concat({ m, m, ops.exp(ops.affine(d.pick():slice(0, 4, 6), { scale = 0.1 })) }, 0)
  end,
  -- overlapping slices of one value, some of it unread
  function(d)
    local x = d.pick()
    return G.concat({ x:slice(0, 0, 3), x:slice(0, 2, 5) }, 0)
  end,
  function(d)
    local x = ops.gelu_tanh(d.pick())
    local y = ops.mul(x:slice(1, 0, 3), x:slice(1, 1, 4))
    return G.concat({ y, x:slice(1, 1, 2) }, 1)
  end,
  -- a part of a join that others read too: dense, as a picked value, as an output
  function(d)
    local m = ops.affine(d.w(), { scale = 0.5 })
    local wide = G.concat({ m, ops.silu(d.w()) }, 1)
    return ops.linear(ops.linear(d.pick(), m), wide:slice(1, 2, 6))
  end,
  function(d)
    local m = d.keep(ops.silu(d.pick()))
    return G.concat({ m, ops.gelu_tanh(d.pick()) }, 1):slice(1, 2, 6)
  end,
  function(d)
    local m = d.keep(ops.silu(d.pick()))
    return ops.add(G.concat({ m, d.pick() }, 0):slice(0, 3, 9), m)
  end,
  -- a part whose elements are read in another order, and one that repeats a row
  function(d)
    local m = ops.silu(d.pick())
    local wide = G.concat({ m, ops.gelu_tanh(d.pick()) }, 1)
    return ops.add(ops.silu(m:reshape { 4, 6 }):reshape { 6, 4 }, wide:slice(1, 4, 8))
  end,
  function(d)
    local m = ops.silu(d.pick())
    local wide = G.concat({ ops.gelu_tanh(d.pick()), m }, 1)
    return ops.sub(ops.silu(m:reshape { 24 }):reshape { 6, 4 }, wide:slice(1, 0, 4))
  end,
  function(d)
    local row = ops.silu(d.pick():slice(0, 0, 1))
    return G.concat({ row:expand { 3, 4 }, ops.silu(d.pick()):slice(0, 0, 3) }, 0)
  end,
  -- three axes permuted, so that the inverse is another order; an op with two results
  function(d)
    return ops.gelu_tanh(d.pick():reshape { 2, 3, 4 }:permute { 1, 2, 0 }):reshape { 6, 4 }
  end,
  function(d)
    local q, k, v = d.pick(), d.pick(), d.pick()
    local function heads(x)
      return x:reshape { 1, 1, 6, 2, 2 }
    end
    local o, lse = ops.attention(heads(q), heads(k), heads(v))
    local first = lse:reshape { 2, 6 }:permute { 1, 0 }:slice(1, 0, 1)
    return ops.add(o:reshape { 6, 4 }, first:expand { 6, 4 })
  end,
  -- constants, and values computed from them alone
  function(d) return ops.add(d.setup(), d.pick()) end,
  function(d) return ops.mul(d.pick(), ops.exp(ops.affine(d.setup(), { scale = 0.1 }))) end,
  function(d)
    local c = d.keep(ops.silu(d.setup()))
    return G.concat({ c:slice(0, 0, 3), d.pick():slice(0, 3, 6) }, 0)
  end,
  function(d)
    local c = G.concat({ d.setup():slice(1, 0, 2), d.setup():slice(1, 2, 4) }, 1)
    return ops.sub(c, d.pick())
  end,
  -- broadcasting, parameters in parts and transposed
  function(d) return ops.add(d.pick(), d.pick():slice(0, 1, 2):expand { 6, 4 }) end,
  function(d) return ops.rms_norm(d.pick(), d.v():slice(0, 2, 3):reshape { 4 }) end,
  function(d) return ops.linear(d.pick(), d.v():slice(0, 1, 5)) end,
  function(d)
    return ops.linear(d.pick(), d.v():slice(0, 2, 6), d.v():slice(0, 5, 6):reshape { 4 })
  end,
  function(d)
    local w = d.w()
    return ops.linear(ops.linear(d.pick(), w), w:permute { 1, 0 })
  end,
  function(d) return ops.linear(d.pick(), d.w():permute { 1, 0 }:slice(0, 0, 4)) end,
  function(d)
    local w = d.w()
    local a, b = ops.linear(d.pick(), w:slice(0, 1, 3)), ops.linear(d.pick(), w:slice(0, 2, 4))
    return G.concat({ a, b }, 1)
  end,
  function(d) return ops.layer_norm(d.pick(), d.v():slice(0, 1, 2):reshape { 4 }) end,
}

local queues = {
  "compute", "compute", "compute", "compute", "comm_intra", "comm_inter", "h2d", "d2h" }

--- Builds graph number `seed` over `params`: inputs "x" and "z" [6, 4], outputs "loss" and others,
-- "dx" and "dw" when there are gradients of x and of one parameter; `recompute` repeats blocks in
-- the backward part, `side` puts about half of the new nodes on side queues. Returns the finished
-- graph and the name of that parameter.
function random_graph.build(params, seed, options, recompute, side)
  local n, queue = dice(seed), dice(seed + 1000000)
  local g = G.graph(params, options)
  local x, z = g:input("x", "f32", { 6, 4 }), g:input("z", "f32", { 6, 4 })
  local pool = { x, z }
  for i = 1, 3 do
    pool[#pool + 1] = g:param("v" .. i)
  end
  pool[#pool + 1] = g:param("fv")
  local const = g:const(T.new("f32", { 6, 4 }):fill_normal(seed, "const"))
  local computed = { const, ops.silu(const) }
  local d = { n = n }
  function d.pick()
    -- mostly recent values, so that values die
    local low = n(10) <= 6 and math.max(1, #pool - 3) or 1
    return pool[low + n(#pool - low + 1) - 1]
  end
  function d.keep(value)
    pool[#pool + 1] = value
    return value
  end
  function d.w()
    return g:param(n(8) == 1 and "fw" or "w" .. n(3))
  end
  function d.v()
    return g:param(n(8) == 1 and "fv" or "v" .. n(3))
  end
  function d.setup()
    if n(3) == 1 then
      computed[#computed + 1] = ops.gelu_tanh(computed[n(#computed)])
    end
    return computed[n(#computed)]
  end
  for block = 1, 3 do
    local again = n(5) > 1
    pool[#pool + 1] = g:block("block" .. block, recompute and again, function()
      local last
      for _ = 1, n(5) + 1 do
        local name = side and queues[queue(#queues)] or "compute"
        last = g:queue(name, function() return kinds[n(#kinds)](d) end)
        pool[#pool + 1] = last
      end
      return last
    end)
  end
  local sum = pool[#pool]
  for _ = 1, 3 do
    sum = sum + d.pick()
  end
  local s = ops.gelu_tanh(ops.affine(sum, { scale = 0.05 }))
  local loss = ops.sum(ops.mul(s, s), { axes = { 0, 1 } })
  g:output("loss", loss)
  g:output("sum", sum)
  g:output("middle", pool[n(#pool)])
  g:output("part", pool[n(#pool)]:slice(0, 1, 4))
  g:output("computed", computed[#computed])
  local name = ({ "w1", "v2", "fw", "fv", "v3" })[n(5)]
  local wrt = { x, g:param(name), pool[#pool - n(3)] }
  for i, grad in ipairs(g:backward(loss, wrt)) do
    if grad then
      g:output(({ "dx", "dw", "dmiddle" })[i], grad)
    end
  end
  return g:finish(), name
end

--- The values of the inputs.
function random_graph.input(name)
  return T.new("f32", { 6, 4 }):fill_normal(1, name)
end

return random_graph
