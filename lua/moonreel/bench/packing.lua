--- The cost of packing weights: kernels of products rearrange a weight in each call before they
-- multiply by it. Weights that do not change over many calls could be kept in packed form. This
-- measures the largest possible gain, because packed weights still have to be read.
-- @module moonreel.bench.packing
local E = require "moonreel.core.exec"
local core = require "moonreel.core.bench"

local packing = {}

-- the linear layers of a block: {rows, outputs, inputs}
local function stdit3(width, rows, text)
  local C = width
  return {{rows, 3 * C, C}, {rows, C, C}, {rows, C, C}, {text, 2 * C, C}, {rows, C, C},
    {rows, 4 * C, C}, {rows, C, 4 * C}}
end

local function t5(width, mlp, rows)
  local C = width
  return {{rows, C, C}, {rows, C, C}, {rows, C, C}, {rows, C, C}, {rows, mlp, C}, {rows, mlp, C},
    {rows, C, mlp}}
end

--- Models, with the number of rows in a step; frozen: never trained.
packing.models = {
  {model = "demo, training", layers = stdit3(128, 768, 448)},
  {model = "the fixed step", layers = stdit3(1152, 2560, 128)},
  {model = "STDiT3-XL/2, one clip of 144p in 51 frames, guided", layers = stdit3(1152, 4320, 600)},
  {model = "T5-XXL, a caption of 256 tokens", layers = t5(4096, 10240, 256), frozen = true},
}

-- seconds of products and of packing, for every form of a model's layers
local function sums(one, dtype, threads, seconds)
  local all = {forward = 0, dx = 0, dw = 0, packing = {forward = 0, dx = 0}, largest = 0}
  for _, layer in ipairs(one.layers) do
    for _, form in ipairs(one.frozen and {"forward"} or {"forward", "dx", "dw"}) do
      local r = core.linear(form, dtype, threads, layer[1], layer[2], layer[3], seconds)
      all[form] = all[form] + r.seconds
      all.largest = math.max(all.largest, r.packing_s / r.seconds)
      all.how = all.how or r.how
      if form ~= "dw" then
        all.packing[form] = all.packing[form] + r.packing_s
      end
    end
  end
  return all
end

--- Measures.
---@param options table  threads, dtype, seconds: per model
---@return table[] rows  model, rows, how (of the first layer); shares of the products' time:
---   largest (for one product), forward (for a forward pass), and for trained models step (for a
---   step with grad_checkpoint), saved (in it, if each weight is packed once per form); bytes
---   (needed to keep all forms packed, relative to the weights)
---@return table machine isa, dtype, threads
function packing.measure(options)
  local device <close> = E.device("cpu", options.threads or 0)
  local facts = device:facts()
  local dtype = options.dtype or (facts.bf16 and "bf16" or "f32")
  local rows = {}
  for i, one in ipairs(packing.models) do
    local all = sums(one, dtype, facts.threads, options.seconds / #packing.models / 21)
    local forms = one.frozen and 1 or 2
    rows[i] = {model = one.model, rows = one.layers[1][1], how = all.how, largest = all.largest,
      forward = all.packing.forward / all.forward,
      -- the f32 kernels of moonreel also multiply bf16, packed as f32
      bytes = forms * ((facts.bf16_by_f32 and dtype == "bf16") and 2 or 1)}
    if not one.frozen then
      -- the forward pass runs twice
      local step = 2 * all.forward + all.dx + all.dw
      rows[i].step = (2 * all.packing.forward + all.packing.dx) / step
      rows[i].saved = all.packing.forward / step
    end
  end
  return rows, {isa = facts.isa, dtype = dtype, threads = facts.threads}
end

return packing
