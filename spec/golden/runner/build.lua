--- What several kinds of reference files share: the model a file describes, its weights and inputs.
-- @module spec.golden.runner.build
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local nn = require "moonreel.nn"
local stdit3 = require "moonreel.models.stdit3"
local text = require "moonreel.models.text"

local build = {}

local FIELDS = {"depth", "hidden_size", "num_heads", "patch_size", "in_channels",
  "caption_channels",
  "model_max_length", "input_sq_size", "mlp_ratio", "pred_sigma", "qk_norm"}

-- the model's fields from a file's metadata; sizes are small enough to build only if the weights
-- hold them
local function config_of(f, weights)
  local c = {compat = true}
  for _, name in ipairs(FIELDS) do
    local v = f.meta[name]
    if v == nil then
      v = weights:need(name)
    end
    c[name] = v
  end
  for _, name in ipairs{"depth", "hidden_size", "num_heads", "in_channels",
      "caption_channels", "model_max_length"} do
    local n = math.tointeger(c[name])
    if not n or n < 1 or n > 1 << 20 then
      base.raise("MR_E_DATA", string.format("%s: %s = %s is not a size",
        f.path, name, tostring(c[name])))
    end
    c[name] = n
  end
  if c.depth > #weights.names then
    base.raise("MR_E_DATA", string.format("%s: depth %d, but the weights hold %d tensors",
      f.path, c.depth, #weights.names))
  end
  return c
end

-- refuse a file that lacks a tensor of this shape
local function check_shape(f, name, shape)
  local row = f.has[name]
  if not row then
    base.raise("MR_E_DATA", string.format("%s: no tensor '%s'", f.path, name))
  end
  if table.concat(row.shape, ",") ~= table.concat(shape, ",") then
    base.raise("MR_E_DATA", string.format("%s: '%s' is [%s], the model wants [%s]", f.path, name,
      table.concat(row.shape, ", "), table.concat(shape, ", ")))
  end
end

--- The model a file describes, with the weights it names.
---@param f mr.GoldenFile
---@param options table  of E.new
---@param change table|nil fields of the model
---@param dtype string|nil compute dtype (f32); a device without it takes another
---@return table  net, params, run, config, weights
function build.load(f, options, change, dtype)
  local weights = f:weights()
  local config = config_of(f, weights)
  for k, v in pairs(change or {}) do
    config[k] = v
  end
  local params = G.params(build.device():compute(dtype or "f32"))
  local net = stdit3.new(params, config)
  params:seal()
  -- shapes first: a file that lies about its sizes must not cost memory
  local list = params:list()
  for _, p in ipairs(list) do
    check_shape(weights, p.name, p.shape)
  end
  local run = E.new(build.device(), params, options)
  local region = run:has("master") and "master" or "w"
  for _, p in ipairs(list) do
    run:set_param(p.frozen and "frozen" or region, p.name, weights:tensor(p.name))
  end
  run:refresh()
  return {net = net, params = params, run = run, config = config, weights = weights}
end

local device
--- The device the runner uses: MOONREEL_DEVICE, else the CPU.
function build.device()
  device = device or E.device()
  return device
end

--- Give parameters the values of tensors of a file, of any dtype.
---@param run mr.Executor
---@param params mr.Params  sealed
---@param f mr.GoldenFile
---@param prefix string     stands before names of parameters in the file
---@param under string|nil  only parameters whose names begin so; the file's names lack it
function build.fill(run, params, f, prefix, under)
  under = under or ""
  for _, p in ipairs(params:list()) do
    if p.name:sub(1, #under) == under then
      local name = prefix .. p.name:sub(#under + 1)
      check_shape(f, name, p.shape)
      run:set_param(p.frozen and "frozen" or "w", p.name, f:tensor(name):to "f32")
    end
  end
end

--- A network with the weights of a file.
---@param net table            what the family made of `params`
---@param params mr.Params     not sealed yet
---@param f mr.GoldenFile
---@param prefix string        stands before names of parameters in the file
---@param options table|nil    of E.new
---@return table               net, params, run
function build.filled(net, params, f, prefix, options)
  params:seal()
  local run = E.new(build.device(), params, options or {})
  build.fill(run, params, f, prefix)
  return {net = net, params = params, run = run}
end

--- A text encoder with the weights of a file.
---@param f mr.GoldenFile
---@param prefix string      stands before its released names in the file
---@param sizes mr.Sizes     of its family
---@param network table      of its family
---@param untold table|nil   values of sizes that are in no tensor
---@return table             net, words (their embedding), sizes, params, run
function build.text_encoder(f, prefix, sizes, network, untold)
  local names = {}
  for _, name in ipairs(f.names) do
    names[#names + 1] = name:sub(1, #prefix) == prefix and name:sub(#prefix + 1) or nil
  end
  local _, blocks = sizes:names(names, f.path)
  local s = sizes:read(f.path, function(name)
    local info = f.has[prefix .. name]
    return info and info.shape
  end, blocks)
  for field, value in pairs(untold or {}) do
    s[field] = value
  end
  local params = G.params "f32"
  local words = nn.Embedding(nn.scope(params), (s.words:gsub("%.weight$", "")),
    table.unpack(f.has[prefix .. s.words].shape))
  local m = build.filled(network.new(params, s), params, f, prefix)
  m.words, m.sizes = words, s
  return m
end

--- Inputs of the model that are not images: packed text, rates, the size that fixes the position
-- table. Text tokens in use come first (the reference gathers them in order); `order` undoes it.
---@param f mr.GoldenFile
---@param prefix string   "in." or "in.step0."
---@param y_name string
---@param mask_name string  text mask; absent: all tokens are used
---@return table           y, len or nil, order or nil, fps, height, width
function build.inputs(f, prefix, y_name, mask_name)
  local y, mask = f:tensor(prefix .. y_name), f:find(prefix .. mask_name)
  local packed = {y = y:reshape{y.shape[1], y.shape[#y.shape - 1], y.shape[#y.shape]}}
  if mask then
    packed.y, packed.len, packed.order = text.pack(packed.y, mask)
  end
  -- fewer rates than samples are repeated as a whole
  -- image models are told none; what a model adds for it then is fresh, which is nothing
  local fps, B = f.has[prefix .. "fps"] and f:list(prefix .. "fps") or {0}, packed.y.shape[1]
  local n = #fps
  for i = n + 1, B do
    fps[i] = fps[i - n]
  end
  packed.fps = T.from({B}, fps)
  packed.height, packed.width = f:list(prefix .. "height")[1], f:list(prefix .. "width")[1]
  return packed
end

return build
