--- A toy autoencoder: cells of 8 x 8 pixels to 8 numbers, the first frame by itself, then two to
-- one. z(t) = its cells + keeps z(t - 1), and back; a state goes from call to call.
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local weights = require "moonreel.models.carry_vae.weights"

local carry = { apart = true }

local SIDE, CHANNELS = 8, 8
local PIXELS = 3 * SIDE * SIDE

local Auto = {}
Auto.__index = Auto

function carry.new(_, fields)
  return setmetatable({ apart = true, channels = CHANNELS, side = SIDE, step = 2, lengths = "2n+1",
    keeps = fields.keeps, maps = { weights } }, Auto)
end

function Auto.latent(_, frames, height, width)
  return { CHANNELS, 1 + frames // 2, height // SIDE, width // SIDE }
end
function Auto.most_frames(_, t) return 2 * t - 1 end
function Auto.head(_, t) return 2 * t - 1 end
function Auto.tail(_, frames, t) return math.min(frames, 2 * t - 1) end
function Auto.grid(_, frames, rows, cols) return frames, rows, cols end

function Auto.parts()
  return { { name = "all", declare = function(params)
    local scope = nn.scope(params, "", { frozen = true })
    return { proj = scope:add("proj.weight", { CHANNELS, PIXELS }, { kind = "zeros" }),
      back = scope:add("back.weight", { PIXELS, CHANNELS }, { kind = "zeros" }) }
  end } }
end

-- [n, C, h, w] of frames
local function cells_of(g, layers, pixels)
  local n, _, H, W = table.unpack(pixels.shape)
  local x = ops.patchify(ops.normalise_u8(pixels:permute { 1, 0, 2, 3 }, { dtype = "f32" })
    :reshape { 1, 3, n, H, W }, { pt = 1, ph = SIDE, pw = SIDE })
  local z = ops.linear(x, nn.cast(g:param(layers.proj), "f32"))
  return z:reshape { n, H // SIDE, W // SIDE, CHANNELS }:permute { 0, 3, 1, 2 }
end

-- frames of cells [n, C, h, w]
local function frames_of(g, layers, z)
  local n, _, h, w = table.unpack(z.shape)
  local x = ops.linear(z:permute { 0, 2, 3, 1 }:reshape { 1, n, h * w, CHANNELS },
    nn.cast(g:param(layers.back), "f32"))
  local pixels = ops.unpatchify(x, { pt = 1, ph = SIDE, pw = SIDE,
    dims = { 3, n, h * SIDE, w * SIDE } })
  return pixels:reshape { 3, n, h * SIDE, w * SIDE }:permute { 1, 0, 2, 3 }
end

local function scaled(x, by) return (ops.affine(x, { scale = by })) end

-- a call of latent frame t; `n` frames stand for it
local function call_of(t, n, key, takes, gives, nodes)
  takes.state = t > 0 and takes.state or nil
  return { part = "all", key = ("%s of %d"):format(key, n), takes = takes, gives = gives,
    nodes = nodes }
end

local jobs = {}

function jobs.encode(self, s, t, first, n)
  local cell = { 1, CHANNELS, s.size[3], s.size[4] }
  return call_of(t, n, ("encode %dx%d"):format(s.height, s.width), {
    pixels = { "pixels", first, dtype = s.dtype, shape = { n, 3, s.height, s.width } },
    state = { "state", 0, dtype = "f32", shape = cell } },
    { out = { "z", t, 1 }, state = { "state", 0, 1 } }, function(g, layers, io)
      local z = ops.mean(cells_of(g, layers, io.pixels), { axes = { 0 }, keep = true })
      z = io.state and z + scaled(io.state, self.keeps) or z
      return { out = ops.copy(z), state = ops.copy(z) }
    end)
end

function jobs.decode(self, s, t, first, n)
  local cell = { 1, CHANNELS, s.size[3], s.size[4] }
  return call_of(t, n, ("decode %dx%d"):format(s.size[3], s.size[4]), {
    z = { "z", t, dtype = "f32", shape = cell },
    state = { "state", 0, dtype = "f32", shape = cell } },
    { out = { "pixels", first, n }, state = { "state", 0, 1 } }, function(g, layers, io)
      local z = io.state and io.z - scaled(io.state, self.keeps) or io.z
      local shape = { n, table.unpack(cell, 2) }
      return { out = ops.copy(frames_of(g, layers, z:expand(shape))), state = ops.copy(io.z) }
    end)
end

function Auto:calls(job, s)
  local list = { jobs[job](self, s, 0, 0, 1) }
  for t = 1, s.frames // 2 do
    list[t + 1] = jobs[job](self, s, t, 2 * t - 1, 2)
  end
  return list
end

return carry
