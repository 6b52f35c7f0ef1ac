--- What several kinds of reference files share: the model a file describes, its weights and inputs.
-- @module spec.golden.runner.build
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
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
    local row = weights.has[p.name]
    if not row then
      base.raise("MR_E_DATA", string.format("%s: no tensor '%s'", weights.path, p.name))
    end
    if table.concat(row.shape, ",") ~= table.concat(p.shape, ",") then
      base.raise("MR_E_DATA", string.format("%s: '%s' is [%s], the model wants [%s]",
        weights.path, p.name,
        table.concat(row.shape, ", "), table.concat(p.shape, ", ")))
    end
  end
  local run = E.new(build.device(), params, options)
  local region = run:has("master") and "master" or "w"
  for _, p in ipairs(list) do
    run:set_param(region, p.name, weights:tensor(p.name))
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
