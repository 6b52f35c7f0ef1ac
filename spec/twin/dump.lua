--- Train a recipe and write all that a twin needs to follow: inputs of every micro-step, losses,
-- and the state of some steps.
--
--   moonreel dump.lua OUT RECIPE [key=value ...]
--
-- OUT/steps.safetensors    SSSS.M.NAME: step, micro-step, input or output
-- OUT/state.safetensors    SSSS.REGION.NAME, after the step; grad of the step before its clip
-- OUT/settings.json, OUT/journal.jsonl
-- TWIN_STATES=0,1,50 (steps), TWIN_GRADS=1 (steps), TWIN_STAGE=NAME
local base = require "moonreel.core.base"
local dump = require "moonreel.trainer.dump"
local settings = require "moonreel.settings"

local out, steps, state = arg[1], {}, {}
local words = require("moonreel.settings.words").parse(table.move(arg, 2, #arg, 1, {}),
  require "moonreel.cli.train")
local baked = settings.bake(words.positional[1], words.overrides,
  { stage = os.getenv "TWIN_STAGE" })
local twin_names = { latents = "x0", ["latent of pictures"] = "draw0",
  ["latent of frames"] = "draw1" }

-- is a step among those that a variable names?
local function wanted(step, variable)
  return ("," .. os.getenv(variable) .. ","):find((",%d,"):format(step), 1, true) ~= nil
end

local function keep_state(step, program, gradients)
  for _, r in ipairs(program.exec:regions()) do
    for _, p in ipairs((r.name == "grad") == gradients and program.pipe.params:list() or {}) do
      if p.frozen == (r.role == "frozen") then
        -- gradients behind the last micro-step stand for those of the step
        local name = ("%04d.%s.%s"):format(step, r.name, p.name)
        if not state[name] then
          state[name] = { name = name }
          state[#state + 1] = state[name]
        end
        state[name].tensor = program.exec:param(r.name, p.name)
      end
    end
  end
end

local function watch(step, micro, batch, program)
  for _, row in ipairs(batch and dump.micro_step(batch, program) or {}) do
    row.name = ("%04d.%d.%s"):format(step, micro - 1, twin_names[row.name] or row.name)
    row.tensor = row.tensor:clone()
    steps[#steps + 1] = row
  end
  if wanted(step, micro > 0 and "TWIN_GRADS" or "TWIN_STATES") then
    keep_state(step, program, micro > 0)
  end
end

local _, facts = require("moonreel.trainer").run(baked, { watch = watch })
base.make_dir(out)
dump.write(out .. "/steps.safetensors", steps)
dump.write(out .. "/state.safetensors", state)
base.replace_file(out .. "/settings.json", baked:to_json())
base.replace_file(out .. "/journal.jsonl", base.read_file(facts.dir .. "/journal.jsonl"))
