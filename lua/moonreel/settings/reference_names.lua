--- Names of our fields in the reference systems, for `show --as`. A path or a record that is not
-- listed has the same name there. The reference systems do not have fields that only moonreel has.
-- @module moonreel.settings.reference_names
local shared = { ckpt_path = "model.from_pretrained", prefetch = "prefetch_factor",
  ["optim.grad_clip"] = "grad_clip",
  ["optim.ema_decay"] = "ema_decay", accumulate = "accumulation_steps" }

local function over(base, more)
  local out = {}
  for key, value in pairs(base) do
    out[key] = value
  end
  for key, value in pairs(more) do
    out[key] = value
  end
  return out
end

-- fields without a counterpart, by first name or path
local ours = { name = true, compat = true, steps = true, start_from_scratch = true,
  start_step = true, start_epoch = true, device = true,
  threads = true,
  stages = true, env = true, user = true, resolutions = true, nproc_per_node = true,
    hostfile = true, standalone = true,
  ["model.temporal_pos"] = true, ["scheduler.shift"] = true, ["sampling.seeds"] = true,
    ["sampling.prompts"] = true,
  ["sampling.ema"] = true,
  ["sampling.height"] = true, ["sampling.width"] = true }

local names = {
  ["opensora-1.2"] = over(shared, {
    ["optim.lr"] = "lr", ["optim.eps"] = "adam_eps", ["optim.weight_decay"] = "weight_decay",
    ["plugin_config.sp_size"] = "sp_size",
      ["plugin_config.reduce_bucket_size_in_m"] = "reduce_bucket_size_in_m",
    ["sampling.frames"] = "num_frames", sampling = "",
  }),
  ["opensora-2.0"] = over(shared, {
    ["optim.type"] = "optim.cls", vae = "ae", text_encoder = "t5", sampling = "sampling_option",
    ["sampling.frames"] = "sampling_option.num_frames", ["sampling.save_fps"] = "fps_save",
      ["sampling.save_dir"] = "save_dir",
    ["sampling.cond_type"] = "cond_type", ["sampling.motion_score"] = "motion_score",
      ["sampling.use_t2i2v"] = "use_t2i2v",
    ["sampling.img_resolution"] = "img_resolution", discriminator_schedule = "disc_lr_scheduler",
    discriminator_optim = "optim_discriminator",
    ["discriminator_optim.type"] = "optim_discriminator.cls",
  }),
}

local reference_names = {}

--- Known systems.
reference_names.systems = { "opensora-1.2", "opensora-2.0" }

--- The name of one of our paths in a system; nil if it has no name there.
---@param system string
---@param path string
---@return string|nil
function reference_names.of(system, path)
  local first, rest = path:match("^([^.]+)(.*)$")
  if ours[path] or ours[first] then
    return nil
  end
  local list = names[system]
  if list[path] then
    return list[path]
  end
  if list[first] then
    return list[first] == "" and rest:sub(2) or list[first] .. rest
  end
  return path
end

return reference_names
