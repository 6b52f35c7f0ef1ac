--- Sets: the results to make of each checkpoint. All renderings of a set have one size. The set
-- "loss" is the evaluation loss.
-- @module moonreel.watch.sets
local base = require "moonreel.core.base"
local json = require "moonreel.core.json"
local presets = require "moonreel.sample.presets"
local prompts = require "moonreel.sample.prompts"
local settings = require "moonreel.settings"

local sets = {}

--- The name of the set that a recipe itself asks for, and that of the evaluation loss.
sets.OWN, sets.LOSS = "recipe", "loss"

local Set = {}
Set.__index = Set

--- Builds the sets of a watch.
---@param asked table  presets: names or nil; frames, height, width, seeds, steps, guidance, fps,
---   batch_size, prompts: as sampler:render takes them; loss: also the evaluation loss; loss_only:
---   only the evaluation loss
---@return mr.WatchSet[]  {name, overrides}; raises MR_E_USAGE for an unknown preset, and for
---   prompts that no checkpoint could render
function sets.of(asked)
  local list, options = {}, {}
  for _, text in ipairs(asked.prompts or {}) do
    prompts.check(text)
  end
  for _, key in ipairs { "frames", "height", "width", "seeds", "steps", "guidance", "fps",
      "batch_size" } do
    options[key] = asked[key]
  end
  local function add(name, overrides, frames)
    local own = { frames = frames }
    for key, value in pairs(options) do
      own[key] = value
    end
    list[#list + 1] = setmetatable({ name = name, overrides = overrides, options = own,
      prompts = asked.prompts }, Set)
  end
  for _, name in ipairs(asked.presets or {}) do
    local preset, overrides = presets.of(name, "watch"), {}
    presets.clear_size(overrides, "--preset " .. name)
    table.move(preset.overrides, 1, #preset.overrides, #overrides + 1, overrides)
    add(name, overrides, require("moonreel.sample.names").frames(preset.frames))
  end
  if not (asked.presets or asked.loss_only) then
    local words = { asked.frames and tostring(asked.frames),
      asked.height and ("%dx%d"):format(asked.height, asked.width) }
    local name = table.concat({ words[1] or words[2], words[1] and words[2] or nil }, "x")
    add(name ~= "" and name or sets.OWN, {})
  end
  if asked.loss then
    list[#list + 1] = setmetatable({ name = sets.LOSS, loss = true }, Set)
  end
  return list
end

-- the settings for rendering, and the prompts
local function ask(self, own)
  local s = #self.overrides > 0 and settings.with(own, self.overrides) or own
  return s, prompts.read(self.prompts, s)
end

-- the options of sampler:render, with the prompts
local function options_of(self, rows)
  local options = {}
  for key, value in pairs(self.options) do
    options[key] = value
  end
  for name, list in pairs(prompts.options(rows)) do
    options[name] = list
  end
  return options
end

--- The key identifies a set: it covers everything asked of a checkpoint except its weights.
---@param own table   settings of the checkpoint, with the fields of the command line
---@param ema boolean|nil  nil: as the settings say
---@return string     32 hexadecimal digits
function Set:key(own, ema)
  if self.loss then
    return base.hash128(json.encode { "loss", own.hash, own:plain "eval_timesteps" or false,
      own.num_eval_timesteps or false, own.eval_ema, own.eval_in_turn, own.dataset.hold_back,
      own.steps })
  end
  local s, found = ask(self, own)
  if ema == nil then
    ema = s.sampling.ema
  end
  return base.hash128(json.encode { s.hash, s:plain "sampling", s:plain "scheduler", found.first,
    ema, options_of(self, found.rows) })
end

--- What a set asks of a sampler.
---@param sampler mr.Sampler
---@return table options  of sampler:request
---@return table found    prompts
---@return table settings for rendering
function Set:ask(sampler)
  local s, found = ask(self, sampler.settings)
  return options_of(self, found.rows), found, s
end

return sets
