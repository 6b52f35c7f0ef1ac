--- Perceptual distance of pictures: differences of the normalized features of VGG-16, weighted by
-- channel (LPIPS). The network is loaded from files in the released form. It is not trained and is
-- not part of checkpoints. Ref: Zhang et al. 2018, arXiv:1801.03924; Simonyan & Zisserman 2014,
-- arXiv:1409.1556; opensora-2.0.md 13.
-- @module moonreel.losses.perceptual
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.core.ckpt"
local listing = require "moonreel.text.listing"
local nn = require "moonreel.nn"
local ops = require "moonreel.core.op"
local volume = require "moonreel.nn.volume"

local perceptual = {}

--- The prefix of its parameters in the table of a run.
perceptual.PREFIX = "perceptual"

-- numbers of the convolutions of each stage in `features`; pictures are halved after each stage
local STAGES <const> = { { 0, 2 }, { 5, 7 }, { 10, 12, 14 }, { 17, 19, 21 }, { 24, 26, 28 } }
local WIDTHS <const> = { 64, 128, 256, 512, 512 } -- channels of the released network's stages
local SHIFT <const>, SCALE <const> = { -0.030, -0.088, -0.188 }, { 0.458, 0.448, 0.450 }
local EPS <const> = 1e-10    -- added to the length of a feature vector
local LEAST <const> = 1e-30  -- added to its square, so that a zero vector has a gradient
local MOST <const> = 3e38    -- means no limit
local WEIGHTS <const> = { f16 = true, bf16 = true, f32 = true, f64 = true } -- dtypes in files
local SIDE <const> = 1 << #STAGES - 1 -- pixels of the shortest side

-- ---- files ----

-- the two files: the field with its path, the default path, and its contents
local FILES <const> = {
  { "vae_loss_config.perceptual_network", "./ckpts/vgg16-397923af.pth",
    "the features of VGG-16 as torchvision saves them (features.0.weight to features.28.bias)" },
  { "vae_loss_config.perceptual_linear", "./ckpts/lpips_vgg.pth",
    "the linear layers of LPIPS for VGG-16 (lin0.model.1.weight to lin4.model.1.weight)" },
}

local function features_name(i) return ("features.%d.weight"):format(i) end

-- raises an error that says what a file should contain; `here`: adds what one tensor should be
local function refuse(which, problem, here)
  local field, _, form = table.unpack(FILES[which])
  base.raise("MR_E_CKPT", ("%s: %s; expected %s%s"):format(field, problem, form, here or ""))
end

-- opens a file of weights, or raises an error that says where it belongs
local function open(which, path)
  local field, _, form = table.unpack(FILES[which])
  if not base.exists(path) then
    base.raise("MR_E_CKPT", ("%s: there is no file '%s', and nothing is downloaded; "
      .. "expected %s; try: put it there, %s = \"FILE\", or "
      .. "vae_loss_config.perceptual_loss_weight = 0 without this loss")
      :format(field, path, form, field))
  end
  local good, source = pcall(ckpt.open, path)
  if not good then
    refuse(which, source.message or tostring(source))
  end
  return source
end

-- raises an error about a tensor that is missing or has another shape
local function refuse_shape(which, source, name, expected)
  local info = source:info(name)
  refuse(which, ("%s: tensor '%s' is %s"):format(source:path(), name,
    info and listing.shape(info.shape) or "missing"), ", here " .. expected)
end

-- the channels of the stages, as the network's file has them
local function widths_of(source)
  local widths, inputs = {}, 3
  for stage, numbers in ipairs(STAGES) do
    for k, i in ipairs(numbers) do
      local info = source:info(features_name(i))
      local shape = info and info.shape or {}
      if #shape ~= 4 or shape[2] ~= inputs or k > 1 and shape[1] ~= inputs then
        refuse_shape(1, source, features_name(i), ("[%s,%d,3,3]"):format(
          k > 1 and inputs or "outputs", inputs))
      end
      inputs = shape[1]
    end
    widths[stage] = inputs
  end
  return widths
end

-- ---- the network ----

local Network = {}
Network.__index = Network

-- a convolution of pictures
local function conv(scope, i, inputs, outputs)
  return volume.Conv(scope, "features." .. i, inputs, outputs, { kernel = { 3, 3 },
    pad = { 0, 0, 1, 1, 1, 1 } })
end

--- Declares the parameters, with the sizes of the files. If the file of features does not exist, as
-- in a plan, it uses the sizes of the released network.
---@param params mr.Params
---@param files table  paths other than the defaults: network, linear
---@return mr.Perceptual
function perceptual.new(params, files)
  local self = setmetatable({ stages = {},
    paths = { files.network or FILES[1][2], files.linear or FILES[2][2] } }, Network)
  local widths = WIDTHS
  if base.exists(self.paths[1]) then
    local source <close> = open(1, self.paths[1])
    widths = widths_of(source)
  end
  local scope = nn.scope(params, perceptual.PREFIX, { frozen = true, outside = true })
  local inputs = 3
  for stage, numbers in ipairs(STAGES) do
    local row = { convs = {}, width = widths[stage] }
    for k, i in ipairs(numbers) do
      row.convs[k] = conv(scope, i, inputs, row.width)
      inputs = row.width
    end
    row.linear = scope:add(("lin%d.model.1.weight"):format(stage - 1), { 1, row.width, 1, 1 },
      { kind = "ones" })
    self.stages[stage] = row
  end
  return self
end

--- Refuses missing files, without reading the files.
function Network:check()
  for which in ipairs(FILES) do
    open(which, self.paths[which]):close()
  end
end

-- Checks the numbers of a tensor. Negative weights of the linear layers would give a distance that
-- becomes smaller as pictures differ more.
local function problem_of(which, info, t)
  local ptr, bytes = t:ptr()
  if not WEIGHTS[info.dtype] then
    return "is " .. info.dtype .. "; expected floating point numbers"
  elseif T.nonfinite(ptr, bytes, "f32") > 0 then
    return "has numbers that are not finite"
  elseif which == 2 and t:min() < 0 then
    return "has numbers below zero"
  end
end

-- loads a parameter from its file
local function fill(which, source, exec, p)
  local name = p.name:sub(#perceptual.PREFIX + 2)
  local info = source:info(name)
  if not info or table.concat(info.shape, ",") ~= table.concat(p.shape, ",") then
    refuse_shape(which, source, name, listing.shape(p.shape))
  end
  local t <close> = T.new("f32", p.shape)
  source:read_f32(name, t)
  local problem = problem_of(which, info, t)
  if problem then
    refuse(which, ("%s: tensor '%s' %s"):format(source:path(), name, problem),
      "; try: another copy of the file")
  end
  exec:set_param("frozen", p.name, t)
end

--- Fills the parameters from the files.
---@param exec mr.Exec
---@param params mr.Params  parameters of the executor
function Network:load(exec, params)
  for which in ipairs(FILES) do
    local source <close> = open(which, self.paths[which])
    for _, p in ipairs(params:list()) do
      local own = p.name:match("^" .. perceptual.PREFIX .. "%.(%a+)")
      if own == (which == 1 and "features" or "lin") then
        fill(which, source, exec, p)
      end
    end
  end
end

local function relu(x) return (ops.clamp(x, { low = 0, high = MOST })) end

-- the elementwise maximum
local function greater(a, b) return a + relu(b - a) end

-- halves pictures by the maximum of 2 x 2 pixels; an odd last row or column is dropped
local function halved(x)
  local N, _, H, W, C = table.unpack(x.shape)
  local h, w = H // 2, W // 2
  local function at(i, k)
    return x:slice(2, 0, 2 * h):slice(3, 0, 2 * w):reshape { N, h, 2, w, 2, C }
      :slice(2, i, i + 1):slice(4, k, k + 1)
  end
  local y = greater(greater(at(0, 0), at(0, 1)), greater(at(1, 0), at(1, 1)))
  return y:reshape { N, 1, h, w, C }
end

-- feature vectors scaled to length one at each position, f32
local function normalised(x)
  x = nn.cast(x, "f32")
  local square = ops.sum(x * x, { axes = { 4 }, keep = true })
  local length = ops.sqrt((ops.affine(square, { scale = 1, shift = LEAST })))
  return x / ops.affine(length, { scale = 1, shift = EPS }):expand(x.shape)
end

-- the normalized features of all stages
local function features(self, g, x, dtype)
  x = (x - g:const(T.from({ 1, 1, 1, 1, 3 }, SHIFT))) / g:const(T.from({ 1, 1, 1, 1, 3 }, SCALE))
  x = nn.cast(x, dtype)
  local list = {}
  for i, stage in ipairs(self.stages) do
    x = i > 1 and halved(x) or x
    for _, layer in ipairs(stage.convs) do
      x = relu(layer(g, x))
    end
    list[i] = normalised(x)
  end
  return list
end

--- The distance of pairs of pictures.
---@param g mr.Graph
---@param x mr.Value  f32 [N, 1, H, W, 3] of -1..1, H and W at least 16
---@param y mr.Value  likewise
---@return mr.Value   f32 [N]
function Network:distance(g, x, y)
  local N, _, H, W = table.unpack(x.shape)
  if H < SIDE or W < SIDE then
    base.raise("MR_E_SHAPE", ("the perceptual loss cannot use pictures of %d x %d; expected at "
      .. "least %d x %d, as VGG-16 halves them %d times"):format(H, W, SIDE, SIDE, #STAGES - 1))
  end
  local dtype = g:param(self.stages[1].linear).dtype
  local of_x, of_y, all = features(self, g, x, dtype), features(self, g, y, dtype), nil
  for i, stage in ipairs(self.stages) do
    local difference = of_x[i] - of_y[i]
    local weight = nn.cast(g:param(stage.linear), "f32"):reshape { 1, 1, 1, 1, stage.width }
    local weighed = difference * difference * weight
    local places = ops.sum(weighed, { axes = { 4 } })
    local one = ops.mean(places:reshape { N, T.count(places.shape) // N }, { axes = { 1 } })
    all = all and all + one or one
  end
  return all
end

return perceptual
