--- What reference files of autoencoders and transformers share: axes, a graph over tensors, and
-- what files keep of long tensors and of gradients.
-- @module spec.golden.runner.clips
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ops = require "moonreel.core.op"

local clips = {}

--- [B, C, T, H, W] as [B, T, H, W, C], and back.
function clips.last(x) return x:permute { 0, 2, 3, 4, 1 } end

function clips.first(x) return x:permute { 0, 4, 1, 2, 3 } end

--- Run a graph over tensors.
---@param m table      params, run
---@param inputs table tensors by name
---@param nodes fun(g, values: table)  names outputs
---@return mr.Program
function clips.evaluate(m, inputs, nodes)
  local g, values = G.graph(m.params, { edges = m.run:edges() }), {}
  for name, t in pairs(inputs) do
    values[name] = g:input(name, t.dtype, t.shape)
  end
  nodes(g, values)
  g:finish()
  local prog = m.run:compile(g)
  for name, t in pairs(inputs) do
    prog:set(name, t)
  end
  prog:run()
  return prog
end

--- Mean of all values.
function clips.mean(x) return (ops.mean(x)) end

--- Pixels as a program takes them.
---@param pixels mr.Tensor  u8
---@return mr.Tensor        f32, -1..1
function clips.of_u8(pixels) return pixels:to "f32" * (1 / 127.5) - 1 end

--- i -> ((7919 i) mod 1009) / 504 - 1 over a shape.
function clips.loss_weight(shape)
  local values = {}
  for i = 0, T.count(shape) - 1 do
    values[i + 1] = 7919 * i % 1009 / 504 - 1
  end
  return T.from(shape, values)
end

--- Compare what a file keeps of a long tensor [B, C, T, H, W]: some frames, and means.
---@param frames integer[]
function clips.kept(f, result, name, frames, got, tolerance)
  local function compare(what, value)
    if f.has[name .. what] then
      result:scaled(name .. what, value, f:tensor(name .. what), tolerance)
    end
  end
  local some, s = {}, got.shape
  for i, at in ipairs(frames) do
    some[i] = got:slice(2, at, at + 1):clone()
  end
  local flat = got:reshape { s[1], s[2], s[3], s[4] * s[5] }
  compare(".frames", G.concat(some, 2))
  compare(".time_mean", ops.mean(got, { axes = { 2 } }))
  compare(".frame_mean", ops.mean(flat, { axes = { 3 } }))
  compare(".frame_square", ops.mean(flat * flat, { axes = { 3 } }))
end

--- Gradients of weights that a file has under names of a form, as check:weights takes them. Of a
-- key's bias there is none, which softmax does not see.
---@param form string  a Lua pattern that captures the parameter
function clips.weights(f, m, form)
  local rows = {}
  for _, name in ipairs(f.names) do
    local own = name:match(form)
    if own and not own:find "to_k%.bias$" then
      rows[#rows + 1] = { name, m.run:param("grad", own), f:tensor(name) }
    end
  end
  return rows
end

--- The same where larger ones stand as sums over all axes but the first, and over the first.
function clips.sums(f, m)
  local rows = clips.weights(f, m, "^grad%.%d*%.?weight%.(.*)")
  local function rows_of(t)
    return ops.sum(t:reshape { t.shape[1], T.count(t.shape) // t.shape[1] }, { axes = { 1 } })
  end
  local function columns_of(t) return ops.sum(t, { axes = { 0 } }) end
  for prefix, of in pairs { gradrow = rows_of, gradcol = columns_of } do
    for _, row in ipairs(clips.weights(f, m, "^" .. prefix .. "%.%d*%.?weight%.(.*)")) do
      row[2] = of(row[2])
      rows[#rows + 1] = row
    end
  end
  return rows
end

return clips
