--- The names that the prompt and scripts have in addition to those of Lua; opens files by name.
-- @module moonreel.repl.names
local base = require "moonreel.core.base"
local clean = require "moonreel.text.clean"
local offered = require "moonreel.repl.offered"

local names = {}

-- file name extensions of pictures and clips, which are decoded
local clips = { mp4 = true, mkv = true, webm = true, mov = true, avi = true,
  gif = true, png = true, jpg = true, jpeg = true }
local weights = { safetensors = true, json = true, pth = true, bin = true, pt = true,
  ckpt = true }

-- the directory of a run that has no checkpoint yet; nil: there is no such run
local function run_without(path, outputs)
  local dir = require("moonreel.runs.find").named(path, outputs)
  return dir and not require("moonreel.run").stages(dir)
    and #require("moonreel.ckpt").steps(dir) == 0 and dir or nil
end

--- Opens the file or run that a user names.
---@param spec string
---@param outputs string|nil  directory of the runs
---@return any value
---@return string name     the usual name of such a value at the prompt: ckpt, r, index or clip
---@return string|nil run  directory of its run
function names.open(spec, outputs)
  if type(spec) ~= "string" then
    base.raise("MR_E_USAGE", ("open: expected a name, got %s"):format(type(spec)))
  end
  local path = spec:gsub("(.)/+$", "%1")
  local extension = (path:match("%.(%w+)$") or ""):lower()
  if extension == "mrx" or base.exists(path .. "/data.sum") then
    return require("moonreel.repl.data").index(path), "index"
  end
  if clips[extension] then
    return require("moonreel.repl.data").decode(path), "clip"
  end
  local is_file = base.exists(path) and not base.exists(path .. "/.")
  if extension == "lua" or (not is_file and not base.exists(path)
      and pcall(require("moonreel.recipe.files").root, path)) then
    return require("moonreel.settings").bake(path), "r"
  end
  if is_file and not weights[extension] then
    base.raise("MR_E_USAGE",
      ("%s is not a checkpoint, recipe, index or clip; expected .safetensors, .index.json, .pth, "
        .. ".bin, .lua, .mrx or a clip"):format(spec))
  end
  local bare = run_without(path, outputs)
  if bare then
    return require("moonreel.repl.data").run(bare), "run"
  end
  local c, found = require("moonreel.ckpt").find(path, outputs)
  return c, "ckpt", found.run
end

--- Opens a file or run into an environment.
---@return string line  describes the new value
function names.open_into(env, spec, outputs)
  local value, name = names.bind(env, names.open(spec, outputs))
  return ("%s = %s"):format(name, require("moonreel.repl.show").text(value))
end

--- Gives a value its name in an environment, unless the name is in use: the first opened value
-- keeps it.
---@return any value, string name
function names.bind(env, value, name, run)
  if rawget(env, name) == nil then
    env[name] = value
    if name == "run" and base.exists(value.path .. "/settings.json") then
      names.bind(env, value:settings(), "r")
    end
    if run then
      env.run = require("moonreel.repl.data").run(run)
    end
  end
  return value, name
end

-- ---- names that are not there

-- how open() creates each name
local opened = { ckpt = "CKPT|RUN", run = "RUN", r = "RECIPE", index = "NAME.mrx", clip = "CLIP" }

--- The answer to an unknown name.
---@param name string
---@param known string[]  similar names
---@param is_command (fun(name: string): any)|nil  of the shell
---@return string
function names.unknown(name, known, is_command)
  if opened[name] then
    return ('nothing is open as \'%s\'; try: open("%s")'):format(name, opened[name])
  end
  local app = require "moonreel.app"
  if app.embedded(("lua/moonreel/%s/init.lua"):format(name)) then
    return ("there is no name '%s' here; try: %s = require \"moonreel.%s\""):format(name, name,
      name)
  end
  local near = require "moonreel.text.nearest"(name, known)
  local hint = names.of_shell(name, is_command)
  return ("there is no name '%s' here%s"):format(name, near and (", did you mean '%s'?"):format(
    near)
    or hint ~= "" and hint or "; help() lists the names")
end

--- The hint for a line that names a command of the program; "" for any other line.
---@param line string
---@param is_command (fun(name: string): any)|nil
---@return string
function names.of_shell(line, is_command)
  local word = line:gsub("^%s*moonreel%s", ""):match("^%s*([%l]+)")
  return word and is_command and is_command(word)
    and ("; '%s' is a command of the shell: moonreel %s"):format(word, word) or ""
end

--- Translates a line of the form `help NAME` to Lua; nil: the line is Lua already.
---@param line string
---@return string|nil
function names.asked(line)
  local name = line:match("^%s*help%s+[\"']?([%w_.:]+)[\"']?%s*$")
  return name and ("help(%q)"):format(name)
end

-- functions of the prompt that are called by their bare name
local bare = setmetatable({}, { __mode = "k" })

--- Does the bare name of this value call it, as with `help` and `exit`?
---@param value any
---@return boolean
function names.acts(value) return bare[value] or false end

--- The value that exit() raises.
names.left = setmetatable({}, { __tostring = function() return "exit" end })

local function leave() error(names.left, 0) end

local function lazily(module, key)
  return function(...)
    -- not a tail call, so that a failure finds this function and its name at the prompt
    local out = table.pack(require(module)[key](...))
    return table.unpack(out, 1, out.n)
  end
end

-- the settings to use when the call has no name: those of the open recipe or checkpoint
local function open_settings(env)
  local function named(name, kind)
    local meta = debug.getmetatable(env[name])
    return type(meta) == "table" and rawget(meta, "__name") == kind and env[name] or nil
  end
  local ckpt = named("ckpt", "mr.Checkpoint")
  return named("r", "mr.Settings") or ckpt and ckpt.settings
end

--- Tensors, checkpoints and settings are printed in a readable form.
function names.printers()
  local show = require "moonreel.repl.show"
  show.printer("mr.Tensor", require("moonreel.look.tensor").text)
  show.printer("mr.Checkpoint", function(c) return require("moonreel.ckpt.look").text(c) end)
  show.printer("mr.Settings", function(s)
    -- only complete settings have a hash; a part prints its values
    local whole, hash = pcall(function() return s.hash end)
    if whole and hash then
      return ("settings of %s, hash %s"):format(clean(s.recipe), hash)
    end
    return show.text(require("moonreel.settings.frozen").copy(s))
  end)
end

--- Creates an environment: the names of the prompt on top of Lua's globals.
---@return table env
function names.environment()
  local env = setmetatable({}, { __index = _G })
  env._G = env
  for _, row in ipairs(offered) do
    if row[3] then
      env[row[1]] = require(row[3])
    end
  end
  names.printers()
  local tensor = require "moonreel.look.tensor"
  env.plot, env.hist, env.imshow = tensor.plot, tensor.draw_hist, tensor.imshow
  env.open = function(spec) return (names.bind(env, names.open(spec))) end
  env.decode = lazily("moonreel.repl.data", "decode")
  env.diff, env.norms = lazily("moonreel.ckpt.compare", "diff"),
    lazily("moonreel.ckpt.numbers", "norms")
  env.trend = function(run, ...)
    local dir = type(run) == "string" and require("moonreel.runs.find").one(run, "trend") or run
    -- not a tail call, for the same reason
    local rows = require "moonreel.ckpt.trend"(dir, ...)
    return rows
  end
  env.graph, env.block = lazily("moonreel.repl.graph", "new"),
    lazily("moonreel.repl.graph", "block")
  env.why = function(settings, key)
    if key == nil then
      settings, key = open_settings(env), settings
    end
    if not settings then
      base.raise("MR_E_USAGE", 'why: no recipe is open; try: open("RECIPE"), then why("optim.lr")')
    end
    return require("moonreel.repl.data").why(settings, key)
  end
  env.print = require("moonreel.repl.show").print
  env.help = function(...) return require("moonreel.repl.help").print(env, ...) end
  env.exit, env.quit = leave, leave
  bare[env.help], bare[leave] = true, true
  -- coroutines need their own hook for Ctrl-C
  local edit = require "moonreel.core.edit"
  env.coroutine = setmetatable({
    create = function(f)
      local co = coroutine.create(f)
      edit.watch(co)
      return co
    end,
    wrap = function(f)
      local co = coroutine.create(f)
      edit.watch(co)
      return function(...)
        local out = table.pack(coroutine.resume(co, ...))
        if not out[1] then
          error(out[2], 0)
        end
        return table.unpack(out, 2, out.n)
      end
    end,
  }, { __index = coroutine })
  return env
end

--- Offers the names to a script. A value is created when the script first uses it, and a name that
-- the script defines itself replaces it.
function names.lend()
  local rows, env = {}, nil
  for _, row in ipairs(offered) do
    rows[row[1]] = not row.typed and row or nil
  end
  setmetatable(_G, { __index = function(_, name)
    if not rows[name] then
      return nil
    end
    local module = rows[name][3]
    env = env or not module and names.environment()
    local value = module and require(module) or env[name]
    rawset(_G, name, value)
    return value
  end })
end

return names
