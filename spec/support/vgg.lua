--- Files of a narrow VGG-16 and its linear layers, in the released form.
local T = require "moonreel.core.tensor"
local ckpt = require "moonreel.ckpt"

local vgg = {}

local STAGES = { { 0, 2 }, { 5, 7 }, { 10, 12, 14 }, { 17, 19, 21 }, { 24, 26, 28 } }

local function add(rows, name, shape, values)
  local bytes = values:bytes()
  rows[#rows + 1] = { name = name, dtype = "f32", shape = shape, ptr = bytes, bytes = #bytes }
end

--- Writes both files into a folder.
---@param dir string
---@param width integer    of the first stage
---@param change nil|fun(rows: table, which: string)  alters the rows of a file before it is written
---@return table           network, linear: paths
function vgg.write(dir, width, change)
  local network, linear, inputs = {}, {}, 3
  for stage, numbers in ipairs(STAGES) do
    local outputs = width << math.min(stage - 1, 3)
    for _, i in ipairs(numbers) do
      local shape, fan = { outputs, inputs, 3, 3 }, (9 * inputs) ^ -0.5
      add(network, ("features.%d.weight"):format(i), shape,
        T.new("f32", shape):fill_normal(7, "vgg", i) * (1.4 * fan))
      add(network, ("features.%d.bias"):format(i), { outputs },
        T.new("f32", { outputs }):fill_normal(7, "vgg bias", i) * 0.1)
      inputs = outputs
    end
    local shape = { 1, outputs, 1, 1 }
    add(linear, ("lin%d.model.1.weight"):format(stage - 1), shape,
      T.new("f32", shape) + 1 / outputs)
  end
  -- the other tensors of a torchvision file
  add(network, "classifier.6.bias", { 4 }, T.new("f32", { 4 }))
  if change then
    change(network, "network")
    change(linear, "linear")
  end
  local files = { network = dir .. "/vgg.safetensors", linear = dir .. "/lpips.safetensors" }
  ckpt.write(files.network, network)
  ckpt.write(files.linear, linear)
  return files
end

return vgg
