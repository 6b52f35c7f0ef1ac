--- Refuses arguments of the command line that the run would not read. The registry (`when` of a
-- row) decides about fields that depend on other fields only. This file decides about those that
-- depend on the command, its job, and the parts of a run.
-- @module moonreel.settings.uses
local aspects = require "moonreel.data.aspects"
local families = require "moonreel.recipe.families"
local fault = require "moonreel.recipe.fault"
local registry = require "moonreel.recipe.registry"

local uses = {}

-- ---- properties of a run ----

local function is_diffusion(s) return not registry.get().root.fields.vae.types[s.model.type] end

-- does the run render or evaluate checkpoints while it trains?
local function renders(s) return s.sampling.every > 0 or s.eval.every > 0 end

local function evaluates(s) return s.job == "eval_loss" or s.eval.every > 0 end

-- does a launcher of moonreel start several ranks, and restart them? it gives each a number
local function is_launched(s)
  return s.nproc_per_node > 1 or s.hostfile ~= nil or os.getenv "MOONREEL_RANK" ~= nil
end

local function has_weights(s)
  return s.vae.type and families.of("vae", s.vae.type):open("init").apart
end

-- is there a resolution whose sizes are computed, not listed?
local function computes_sizes(s)
  local names, listed = { s.sampling.resolution }, s:plain("resolutions") or {}
  for name in pairs(s:plain("bucket_config") or {}) do
    names[#names + 1] = name
  end
  for _, name in ipairs(names) do
    local known = s.compat == "opensora-2.0" or not listed[name]
    if known and aspects.resolution(name) then
      return true
    end
  end
  return false
end

local function weighs_perception(s)
  local weights = families.of("model", s.model.type):open("init").loss_weights or {}
  return (s.vae_loss_config.perceptual_loss_weight or weights.perceptual or 0) > 0
end

local function never() return false end

-- ---- rules ----

-- {paths, holds: is it read?, why not, what to try}; patterns match whole paths
local training = {
  { "sampling%..*", renders, "is read by runs that render while they train, and this run does not",
    "set sampling.every=N, too", except = "sampling.every" },
  { "eval_.* num_eval_timesteps", evaluates, "is read for evaluation losses, and this run "
    .. "measures none",
    "set eval.every=N, too, or job=eval_loss" },
  { "restart.*", is_launched, "is read by the launcher of several ranks, and this run is one "
    .. "process",
    "add -n N or --hostfile FILE" },
  { "scheduler%..* vae%..* text_encoder%..* clip%..*", is_diffusion,
    "is read for diffusion models, and this run trains only an autoencoder",
    "leave it out; the fields of the autoencoder are under model" },
  { "vae%.from_pretrained", has_weights, "names a file of weights, and an autoencoder of this "
    .. "type has no weights",
    "leave it out, or set another vae.type" },
  { "vae%.trains", never, "selects the half that trains only for an autoencoder under model",
    "model.trains" },
  { "vae_loss_config%.perceptual_network vae_loss_config%.perceptual_linear", weighs_perception,
    "is read for the perceptual loss, whose weight is 0",
    "set vae_loss_config.perceptual_loss_weight=X, too" },
  { "ae_spatial_compression", computes_sizes,
    "is read for resolutions whose sizes are computed, such as 256px, and this run has none",
    "leave it out: `resolutions` lists the sizes" },
}

-- the fields that a job other than training reads, without those of its data, its models and the
-- folder of runs
local MODELS <const> = "job name outputs seed compat dtype device threads log_every model%..* "
  .. "vae%..* text_encoder%..* clip%..* env%..* user%..* "
local jobs = {
  extract = MODELS .. "part save_text_features cache epochs condition_config%..* is_causal_vae",
  eval_loss = MODELS .. "steps ckpt_path strict eval_.* num_eval_timesteps scheduler%..* "
    .. "sigma_min train_times no_i2v_ref_loss programs_bytes grad_.*",
  reconstruct = MODELS .. "steps ckpt_path",
  batch_search = MODELS .. "batch_search%..* optim%..* scheduler%..* grad_.* accumulate "
    .. "condition_config%..* is_causal_vae dropout_ratio%..* mask_ratios%..* sigma_min train_times "
    .. "no_i2v_ref_loss host_steps plugin.* programs_bytes vae_loss_config%..* mixed_.* "
    .. "discriminator.* gen_loss_config%..* disc_loss_config%..*",
}

-- the fields that a rendering reads, without those of `sampling` and of models
local RENDERED <const> = "name outputs load ckpt_path strict compat dtype device threads "
  .. "resolutions.* ae_spatial_compression scheduler%..* model%..* vae%..* text_encoder%..* "
  .. "clip%..* img_flux.* plugin_config%..* plugin_config_ae%..* env%..* user%..*"

-- does a path match one of several patterns?
local function matches(path, patterns)
  for pattern in patterns:gmatch "%S+" do
    if path:match("^" .. pattern .. "$") or (path .. "."):match("^" .. pattern .. "$") then
      return true
    end
  end
  return false
end

-- the reason why `moonreel train` would not read a field of these settings, and what to try; nil if
-- it does
local function unread_in_training(s, path, row, command)
  if s.job == "reconstruct" and (path == "sampling.save_dir" or path == "batch_size") then
    return nil -- the folder for its clips, and their number in a batch
  end
  if row.reader == "sample" and not renders(s) then
    return ("is read by `moonreel sample`, but %s would not read it; bucket_config has the "
      .. "sizes and lengths to train on"):format(command), ("moonreel sample RUN %s=VALUE, or %s "
      .. "in the recipe"):format(path, path)
  end
  local known = jobs[s.job]
  if known and row.reader ~= "data" and not matches(path, known) then
    return ("has no meaning for job = %s"):format(s.job), "leave it out"
  end
  for _, rule in ipairs(training) do
    local patterns, reads, why, try = table.unpack(rule)
    if path ~= rule.except and matches(path, patterns) and not reads(s) then
      return why, try
    end
  end
end

-- ---- refusals ----

-- calls f(argument, leaf) for each value that these arguments set; the argument none removes a
-- recipe's value, which may be needed because the run does not read the field
local function each(arguments, settings, f)
  local own = {}
  for _, one in ipairs(arguments) do
    own[one.argument] = true
  end
  for _, leaf in ipairs(settings:leaves()) do
    local link, row = leaf.chain[#leaf.chain], leaf.row
    if link and link.command_line and own[link.at] and leaf.value ~= nil and row.reader
        and not row.no_meaning and row.reader ~= "cli" and row.reader ~= "user" then
      f(link.at, leaf)
    end
  end
end

--- Refuses arguments that no part of a run would read.
---@param arguments table[]  {key, argument} from words.parse
---@param command string     "train" or "plan"
---@param parts table[]      {settings} of the run, or of each of its stages
function uses.refuse(arguments, command, parts)
  local read, unread = {}, {}
  for _, part in ipairs(parts) do
    each(arguments, part.settings, function(argument, leaf)
      local why, try = unread_in_training(part.settings, leaf.path, leaf.row, command)
      local key = argument .. "\n" .. leaf.path
      read[key] = read[key] or not why
      unread[#unread + 1] = why and { key = key, text = ("%s: %s %s; try: %s"):format(argument,
        leaf.path, why, try) }
    end)
  end
  for _, one in ipairs(unread) do
    if not read[one.key] then
      fault.usage("%s", one.text)
    end
  end
end

--- Refuses arguments that no rendering reads.
---@param arguments table[]  {key, argument} from words.parse
---@param settings table     settings of the rendering
function uses.refuse_in_rendering(arguments, settings)
  each(arguments, settings, function(argument, leaf)
    if leaf.row.reader ~= "sample" and not matches(leaf.path, RENDERED) then
      fault.usage("%s: %s is read by training, but not by a rendering; try: %s", argument,
        leaf.path, leaf.path == "seed" and "--seed N" or "leave it out")
    end
  end)
end

return uses
