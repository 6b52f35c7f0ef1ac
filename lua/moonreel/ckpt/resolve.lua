--- Resolves `--load RUN[@STEP]|CKPT|latest` and `--ckpt-path P` to a checkpoint (recipes.md 7).
-- @module moonreel.ckpt.resolve
local base = require "moonreel.core.base"
local core = require "moonreel.core.ckpt"
local natural_key = require("moonreel.ckpt.names").key
local run_room = require "moonreel.run"

local resolve = {}

local function split(path)
  local dir, name = path:match("^(.*)/([^/]*)$")
  if not dir then
    return ".", path
  end
  return dir == "" and "/" or dir, name
end

local function strip(path) return #path > 1 and path:gsub("/+$", "") or path end

local function join(dir, name)
  return dir == "." and name or (dir == "/" and "/" .. name or dir .. "/" .. name)
end

local function is_dir(path) return base.exists(path .. "/.") end

local function step_dir(run, step) return ("%s/ckpt/step-%012d"):format(run, step) end

--- The names in a directory; empty if it cannot be listed.
local function names_in(dir)
  local ok, names = pcall(base.list_dir, dir)
  return ok and names or {}
end

local function is_run(path)
  return is_dir(path) and (is_dir(path .. "/ckpt") or base.exists(path .. "/lock")
    or base.exists(path .. "/journal.jsonl"))
end

-- a run with several stages means the newest stage with a checkpoint
local function newest_stage(run)
  local stages = run_room.stages(run)
  for i = #(stages or {}), 1, -1 do
    if #core.steps(stages[i].path) > 0 then
      return stages[i].path
    end
  end
  return run
end

-- a set of a shell pattern, [a-c] or [!a-c], as one of Lua
local function to_set(inner)
  local negated, rest = inner:match "^([!^]?)(.+)$"
  return ("[%s%s]"):format(negated ~= "" and "^" or "", (rest:gsub("[%%%^]", "%%%0")))
end

--- Converts a shell pattern to a Lua pattern: * ? and [...] within one path component. A bracket
-- that is not closed is a letter.
local function to_lua_pattern(glob)
  local out, at = {}, 1
  while at <= #glob do
    local inner, stop = glob:match("^%[([!^]?[^%]]+)%]()", at)
    local letter = glob:sub(at, at)
    out[#out + 1] = inner and to_set(inner) or letter == "*" and "[^/]*" or letter == "?" and "[^/]"
      or letter:gsub("%W", "%%%0")
    at = stop or at + 1
  end
  return "^" .. table.concat(out) .. "$"
end

local function has_magic(text) return text:find("[%*%?%[]") ~= nil end

--- Is this a folder name of the reference systems, perhaps as a pattern: epoch3-global_step1200?
local function is_epoch_name(name) return name:match("^epoch.*%-global_step") ~= nil end

--- Directories and files that match a pattern, sorted. Its `epoch*-global_step*` also matches our
-- folders.
local function expand(pattern)
  local found = { pattern:sub(1, 1) == "/" and "/" or "." }
  for part in pattern:gmatch("[^/]+") do
    local next_found = {}
    for _, dir in ipairs(found) do
      if not has_magic(part) then
        local path = join(dir, part)
        if base.exists(path) then
          next_found[#next_found + 1] = path
        end
      else
        local lua_pattern = to_lua_pattern(part)
        for _, name in ipairs(names_in(dir)) do
          if name:match(lua_pattern) and (name:sub(1, 1) ~= "." or part:sub(1, 1) == ".") then
            next_found[#next_found + 1] = join(dir, name)
          end
        end
        if is_epoch_name(part) then
          for _, step in ipairs(core.steps(dir)) do
            -- the step part of the pattern selects our folders, too
            local step_pattern = to_lua_pattern(part:match("global_step(.*)$"))
            if tostring(step):match(step_pattern) then
              next_found[#next_found + 1] = step_dir(dir, step)
            end
          end
        end
      end
    end
    found = next_found
  end
  return found
end

--- The run directory and step in the path of a committed checkpoint, else nil.
local function run_of(path)
  local dir, name = split(path)
  local step = name:match("^step%-(%d%d%d%d%d%d%d%d%d%d%d%d)$")
  if not step then
    return nil
  end
  local run, ckpt_name = split(dir)
  if ckpt_name ~= "ckpt" then
    return nil
  end
  return run, tonumber(step)
end

-- values by which one is newer than another: number of the run, place of the stage in it, step, and
-- the name
local function age(path)
  local run, step = run_of(path)
  if not step then
    local dir, name = split(path)
    step = tonumber(name:match("global_step(%d+)$"))
    run = step and dir or path
  end
  local outer, stage = run_room.outer(run)
  local place = 0
  for i, begun in ipairs(outer and run_room.stages(outer) or {}) do
    if begun.name == stage then
      place = i
    end
  end
  local _, name = split(outer or run)
  return { tonumber(name:match("^(%d+)%-")) or -1, place, step or -1, natural_key(path) }
end

--- A run's newest checkpoint, of whatever step.
local function whole_run(run, spec)
  run = newest_stage(run)
  local steps = core.steps(run)
  if #steps == 0 then
    base.raise("MR_E_USAGE", ("%s: run %s has no checkpoint yet; try: its recipe.lua, "
      .. "which begins a new run: moonreel train %s/recipe.lua"):format(spec, run, run))
  end
  return { spec = spec, run = run, step = steps[1], continues = true, fallback = true,
    candidates = { step_dir(run, steps[1]) } }
end

--- One explicit path.
local function one_path(path, spec)
  local run, step = run_of(path)
  local newest = run and core.steps(run)[1] == step
  return { spec = spec, run = run, step = step, continues = newest or false,
    fallback = false, candidates = { path } }
end

--- The newest match of a pattern; damaged ones are skipped.
local function newest_of(paths, spec)
  local ages = {}
  for _, path in ipairs(paths) do
    ages[path] = age(path)
  end
  table.sort(paths, function(a, b)
    for i, x in ipairs(ages[a]) do
      if x ~= ages[b][i] then
        return x > ages[b][i]
      end
    end
    return false
  end)
  if is_run(paths[1]) then
    return whole_run(paths[1], spec)
  end
  local found = one_path(paths[1], spec)
  if found.continues then
    return whole_run(found.run, spec)
  end
  found.fallback, found.candidates, found.run = true, paths, nil
  return found
end

-- a folder that is neither a checkpoint nor weights: the checkpoints of a run, or runs; nil for
-- other folders
local function folder_of_checkpoints(path)
  local dir, name = split(path)
  if name == "ckpt" and #core.steps(dir) > 0 then
    return { dir }
  end
  local found = {}
  for _, entry in ipairs(names_in(path)) do
    local below = join(path, entry)
    if is_run(below) and #core.steps(newest_stage(below)) > 0 then
      found[#found + 1] = below
    end
  end
  return #found > 0 and found or nil
end

-- the list that the shell made of a pattern: {PATH,PATH,...} (settings/words.lua)
local function listed(text)
  local found = {}
  for path in (text:match("^{(.*)}$") or ""):gmatch("[^,]+") do
    found[#found + 1] = strip(path)
  end
  return #found > 0 and found or nil
end

--- A run by path, by folder name or by number in `outputs`; nil if there is none.
local function find_run(name, outputs)
  if is_run(name) then
    return name
  end
  if name:find("/", 1, true) then
    return nil
  end
  if is_run(join(outputs, name)) then
    return join(outputs, name)
  end
  if not name:match("^%d+$") then
    return nil
  end
  local matches = {}
  for _, entry in ipairs(names_in(outputs)) do
    if tonumber(entry:match("^(%d+)%-")) == tonumber(name) then
      matches[#matches + 1] = join(outputs, entry)
    end
  end
  if #matches > 1 then
    base.raise("MR_E_USAGE", ("%s: more than one run has this number: %s"):format(name,
      table.concat(matches, ", ")))
  end
  return matches[1]
end

local function latest(outputs, recipe_name)
  local best
  for _, entry in ipairs(names_in(outputs)) do
    local number, name = entry:match("^(%d+)%-(.*)$")
    local run = name == recipe_name and newest_stage(join(outputs, entry))
    if run and #core.steps(run) > 0 and (not best or tonumber(number) > best.number) then
      best = { number = tonumber(number), run = run }
    end
  end
  if not best then
    return nil, ("no checkpoint of '%s' under %s: starting at step 0"):format(recipe_name, outputs)
  end
  return whole_run(best.run, "latest")
end

--- Finds the checkpoint that `spec` means. Verifies nothing: ckpt.load does.
---@param spec string         RUN[@STEP], a checkpoint, a weights file, a folder of these, a
---   pattern, {PATH,...}, or "latest"
---@param outputs string      directory of the runs
---@param recipe_name string? for "latest": the name in NNN-name
---@return table? found   {spec, candidates = paths newest first, fallback = a damaged one is
---   replaced by the next older one, run = its run directory if known, step, continues = it is the
---   newest of its run, so training continues in that directory}; nil for "latest" if there is none
---@return string? reason
function resolve.resolve(spec, outputs, recipe_name)
  outputs = strip(outputs or "outputs")
  if spec == "latest" then
    return latest(outputs, recipe_name)
  end
  local path = strip(spec)
  if path == "" then
    base.raise("MR_E_USAGE", "load: expected a run, a checkpoint or 'latest', got nothing")
  end
  local paths = listed(path) or has_magic(path) and expand(path)
  if paths then
    if #paths == 0 then
      base.raise("MR_E_USAGE", ("%s: no path matches this pattern"):format(spec))
    end
    return newest_of(paths, spec)
  end
  local name, step = path:match("^(.+)@(%d+)$")
  if name then
    local run = find_run(strip(name), outputs)
    if not run then
      base.raise("MR_E_USAGE", ("%s: no run '%s', also not in %s"):format(spec, name,
        outputs))
    end
    run = newest_stage(run)
    local at = math.tointeger(tonumber(step))
    if not base.exists(step_dir(run, at)) then
      local have = core.steps(run)
      base.raise("MR_E_USAGE", ("%s: %s has no checkpoint of step %d; it has %s"):format(spec,
        run, at,
        #have > 0 and table.concat(have, ", ") or "none"))
    end
    return { spec = spec, run = run, step = at, continues = false, fallback = false,
      candidates = { step_dir(run, at) } }
  end
  local run = find_run(path, outputs)
  if run then
    return whole_run(run, spec)
  end
  if base.exists(path) then
    local inside = folder_of_checkpoints(path)
    return inside and newest_of(inside, spec) or one_path(path, spec)
  end
  -- folder names of the reference also mean ours
  local dir, last = split(path)
  local epoch_step = last:match("^epoch%d+%-global_step(%d+)$")
  if epoch_step and base.exists(step_dir(dir, math.tointeger(tonumber(epoch_step)))) then
    return one_path(step_dir(dir, math.tointeger(tonumber(epoch_step))), spec)
  end
  base.raise("MR_E_USAGE", ("%s: no such run (also not in %s), checkpoint or file"):format(
    spec,
    outputs))
end

return resolve
