--- Random weights of a tiny Open-Sora video autoencoder in the layout of the released one: a folder
-- with config.json and model.safetensors. Nothing was learned; for trying what takes such folders.
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local json = require "moonreel.core.json"
local nn = require "moonreel.nn"
local opensora_vae = require "moonreel.models.opensora_vae"

local weights = {}

weights.config = {
  model_type = "VideoAutoencoderPipeline", micro_frame_size = 17,
  shift = {-0.10, 0.34, 0.27, 0.98}, scale = {3.85, 2.32, 2.33, 3.06},
  vae_2d = {type = "VideoAutoencoderKL", block_out_channels = {8, 8, 16, 16},
    layers_per_block = 1, norm_num_groups = 4},
  vae_temporal = {type = "VAE_Temporal_SD", filters = 8, num_res_blocks = 1, num_groups = 4},
}

--- Write the folder.
---@param folder string
---@param seed integer
---@param change fun(name: string, tensor: mr.Tensor): string?, mr.Tensor?  nil: the tensor is left
---   out; for files of other layouts
function weights.vae(folder, seed, change)
  local auto, params = opensora_vae.new(nil, {}), G.params("f32")
  base.make_dir(folder)
  base.replace_file(folder .. "/config.json", json.encode(weights.config))
  auto:declare(nn.scope(params), auto.sizes.read(folder))
  params:seal()
  local device <close> = E.device("cpu")
  local run <close>, rows = E.new(device, params, {}), {}
  run:init(seed)
  for _, p in ipairs(params:list()) do
    local t = run:param(p.frozen and "frozen" or "w", p.name)
    local name = p.name
    if change then
      name, t = change(name, t)
    end
    if name then
      local values = t:bytes()
      rows[#rows + 1] = {name = name, dtype = t.dtype, shape = t.shape, ptr = values,
        bytes = #values}
    end
  end
  ckpt.write(folder .. "/model.safetensors", rows)
end

return weights
