--- Trains a small model on the demo's clips, with faults at given steps. It is a program of its
-- own, so that specs can kill it, preload a faulty disk or give it namespaces of its own.
-- Arguments: the faults as a Lua table, then key=value of the recipe. The faults, each with the
-- number of a step that is over: term and kill (signals to this process), run (a command whose
-- output is printed), fill and free (the file `filler` takes all room of its disk, and is removed
-- again). Also: mount (a directory to put a small disk in memory on, before all else), keep (where
-- to copy it at the end).
local base = require "moonreel.core.base"
local settings = require "moonreel.settings"
local trainer = require "moonreel.trainer"

local trouble = assert(load("return " .. arg[1]))()

local function shell(form, ...)
  local command = form:format(...)
  return assert(os.execute(command), command)
end

local at = {
  term = function() shell("kill -TERM %d", base.pid()) end,
  kill = function() shell("kill -KILL %d", base.pid()) end,
  run = function()
    local pipe <close> = io.popen(trouble.run.command .. " 2>&1; echo exit $?")
    print(pipe:read("a"))
  end,
  fill = function() shell("cat /dev/zero > '%s' 2>/dev/null || true", trouble.filler) end,
  free = function() shell("rm '%s'", trouble.filler) end,
}
local order = { "run", "fill", "free", "term", "kill" }
-- the last save has ended, however slow the disk: with a commit, or without one
local after_saves = { run = true, fill = true, free = true }

local function step_of(name)
  local value = trouble[name]
  return type(value) == "table" and value.step or value
end

-- before the run of the micro-batch that follows the step
table.insert(trainer.steps, #trainer.steps, { "trouble", function(r)
  local get, done = r.programs.get, {}
  local function start(micro, input)
    for _, name in ipairs(order) do
      if step_of(name) == r.step and not done[name] then
        done[name] = true
        if after_saves[name] then
          pcall(r.saver.wait, r.saver)
        end
        at[name]()
      end
    end
    return micro:start(input)
  end
  function r.programs.get(...)
    local micro = get(...)
    return setmetatable({ start = function(_, input) return start(micro, input) end },
      { __index = micro })
  end
end })

if trouble.mount then
  shell("mount -t tmpfs -o size=%s moonreel '%s'", trouble.size, trouble.mount)
end
local overrides = table.move(arg, 2, #arg, 1, {})
local ok, result = pcall(trainer.run, settings.bake("tiny/demo", overrides))
if not ok then
  print(type(result) == "table" and result.message or result)
end
if trouble.keep then
  shell("cp -r '%s' '%s'", trouble.mount, trouble.keep)
end
os.exit(ok and result or type(result) == "table" and result.exit or 1)
