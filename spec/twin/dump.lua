--- Trains a recipe and writes all that a twin needs, as moonreel.trainer.dump does:
--   moonreel dump.lua OUT RECIPE [key=value ...]
-- OUT/SSSS.M.safetensors        inputs and outputs of a step and micro-step
-- OUT/SSSS.state, SSSS.grad.safetensors, settings.json, journal.jsonl; SSSS from the environment:
-- TWIN_STATES=0,1,50, TWIN_GRADS=1 (before the clip); TWIN_STAGE=NAME
local base, dump = require "moonreel.core.base", require "moonreel.trainer.dump"
local settings, out = require "moonreel.settings", arg[1]
local words = require("moonreel.settings.words").parse({ table.unpack(arg, 2) },
  require "moonreel.cli.train")
local baked = settings.bake(words.positional[1], words.overrides,
  { stage = os.getenv "TWIN_STAGE" })
base.make_dir(out)
local function watch(step, micro, batch, program)
  if batch then
    dump.write(("%s/%04d.%d.safetensors"):format(out, step, micro - 1),
      dump.micro_step(batch, program))
  end
  local what, list = table.unpack(micro > 0 and { "grad", os.getenv "TWIN_GRADS" }
    or { "state", os.getenv "TWIN_STATES" })
  if ("," .. list .. ","):find(("," .. step .. ","), 1, true) then
    dump.state(("%s/%04d.%s.safetensors"):format(out, step, what), program, micro > 0)
  end
end
local _, facts = require("moonreel.trainer").run(baked, { watch = watch })
base.replace_file(out .. "/settings.json", baked:to_json())
base.replace_file(out .. "/journal.jsonl", base.read_file(facts.dir .. "/journal.jsonl"))
