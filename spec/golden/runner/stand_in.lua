--- The autoencoder that stands in for one in reference files of Open-Sora 2.0, and conditions as
-- they record them.
-- @module spec.golden.runner.stand_in
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ops = require "moonreel.core.op"

local stand_in = {}

--- Latents [1, C, n, H, W] at their places in zeros, and the mask of these.
---@param shape integer[]  [B, C, T, H, W]
---@param given table[]    {b, at, n, z}
---@return mr.Tensor latent, mr.Tensor mask  [B, C, T, H, W] and [B, 1, T, H, W]
function stand_in.laid(shape, given)
  local latent, mask = T.new("f32", shape), T.new("f32", { shape[1], 1, shape[3], shape[4],
    shape[5] })
  for _, row in ipairs(given) do
    latent:slice(0, row.b, row.b + 1):slice(2, row.at, row.at + row.n):copy_from(row.z)
    mask:slice(0, row.b, row.b + 1):slice(2, row.at, row.at + row.n):copy_from(
      T.new("f32", { 1, 1, row.n, shape[4], shape[5] }) + 1)
  end
  return latent, mask
end

--- Latents of a clip: means of pixels and of groups of frames, then a mix of channels. Ref: the
-- set's README.
function stand_in.encode(x, side, step, causal, W, b)
  local frames, H, width = x.shape[3], x.shape[4], x.shape[5]
  local cells = ops.mean(x:reshape { 3, frames, H // side, side, width // side, side },
    { axes = { 3, 5 } })
  local groups, first = {}, 0
  while first < frames do
    local n = math.min(causal and first == 0 and 1 or step, frames - first)
    groups[#groups + 1] = ops.mean(cells:slice(1, first, first + n):clone(), { axes = { 1 },
      keep = true })
    first = first + n
  end
  local all = G.concat(groups, 1)
  local shape = all.shape
  local z = ops.matmul(W, all:reshape { 3, shape[2] * shape[3] * shape[4] })
  local bias = {}
  for i, value in ipairs(b:totable()) do
    bias[i] = value
  end
  for c = 0, z.shape[1] - 1 do
    z:slice(0, c, c + 1):copy_from((z:slice(0, c, c + 1):clone() + bias[c + 1]))
  end
  return z:reshape { 1, z.shape[1], shape[2], shape[3], shape[4] }
end

--- A case's weights in the order of its text.
---@return table[]  {name, weight}
function stand_in.weights(text, field)
  local list = {}
  for name, weight in text:match('"' .. field .. '": {(.-)}'):gmatch '"([%w_]+)": ([%d.]+)' do
    list[#list + 1] = { name, tonumber(weight) }
  end
  return list
end

return stand_in
