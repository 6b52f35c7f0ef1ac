--- The steps from a recipe file to settings, in order.
-- @module moonreel.settings.bake
local environment = require "moonreel.recipe.environment"
local fault = require "moonreel.recipe.fault"
local fold = require "moonreel.recipe.fold"
local frozen = require "moonreel.settings.frozen"
local hash = require "moonreel.settings.hash"
local kinds = require "moonreel.recipe.kinds"
local layer = require "moonreel.recipe.layer"
local loader = require "moonreel.recipe.loader"
local lost_length = require "moonreel.settings.lengths"
local marker = require "moonreel.recipe.marker"
local override = require "moonreel.recipe.override"
local place = require "moonreel.recipe.place"
local process = require "moonreel.core.process"
local registry = require "moonreel.recipe.registry"
local stages = require "moonreel.settings.stages"
local unknown_resolutions = require "moonreel.settings.resolutions"
local when = require "moonreel.recipe.when"

local bake = {}

local function has_function(value)
  if type(value) ~= "table" or getmetatable(value) ~= nil then
    return type(value) == "function"
  end
  for _, item in pairs(value) do
    if has_function(item) then
      return true
    end
  end
  return false
end

-- Removes values that are computed from the final recipe: every stage has a final recipe, but the
-- outer recipe has none.
local function drop_late(write)
  for key, child in pairs(write.children) do
    if child.tag == "table" then
      drop_late(child)
    elseif child.tag == "late" or (child.tag == "leaf" and has_function(child.value)) then
      write.children[key] = nil
    end
  end
end

-- Step 1: loads the files of the recipe, or of one of its stages, as layers, ancestors first.
local function load_files(job)
  job.layers = {}
  for _, part in ipairs(job.loader:layers(job.file)) do
    job.layers[#job.layers + 1] = { write = layer.of_recipe(part.body, part.shown),
      shown = part.shown, file = part.file }
  end
  job.stages = stages.take(job.layers)
  if job.stage then
    job.layers = stages.layers(job.loader, job.layers, job.stages,
      stages.find(job.stages, job.stage, "--stage " .. job.stage))
  elseif job.stages then
    for _, one in ipairs(job.layers) do
      drop_late(one.write)
    end
  end
end

-- Step 2: adds the command line; stages.NAME.key=value is stronger than key=value.
local function add_overrides(job)
  local late = {}
  for _, argument in ipairs(job.arguments) do
    local name, key = stages.split(argument.key)
    if argument.key == "stages" then
      fault.usage("%s: stages are the recipe's own; try: stages.NAME.key=value, or --stage NAME",
        argument.argument)
    elseif not name then
      local one = override.layer(argument)
      if job.stage then
        one.write.children.load = nil
      end
      job.layers[#job.layers + 1] = one
    else
      stages.find(job.stages, name, argument.argument)
      local one = override.layer { key = key, text = argument.text, argument = argument.argument }
      if name == job.stage then
        late[#late + 1] = one
      end
    end
  end
  table.move(late, 1, #late, #job.layers + 1, job.layers)
end

-- The first layer whose writes below a path still apply: a later replace, remove or none cancels
-- the earlier ones.
local function first_live(job, keys)
  local first = 1
  for index = 1, #job.layers do
    if job.fold:drops(index, keys, #keys) then
      first = index
    end
  end
  return first
end

-- Step 5: a variable that the environment has already is stronger than `env`.
local function add_environment(job)
  for _, leaf in ipairs(job.leaves) do
    local name = leaf.keys[1] == "env" and leaf.keys[2]
    local present = name and process.variable(name)
    if present and present ~= leaf.value then
      leaf.value = present
      leaf.chain[#leaf.chain + 1] = { at = "variable " .. name .. " of the environment",
        raw = present, set = true }
    end
  end
end

-- Is this the outer recipe of stages? Checks about training are left to the stages.
local function is_outer(job) return job.stages and not job.stage end

-- Step 6: checks that every write has a field under the final types, and that each record is set.
-- `collect` has already checked the values of leaves, including those that a stronger layer hides.
local function check_writes(job)
  if is_outer(job) then
    return
  end
  local function walk(index, write, keys, schema)
    if write.tag == "late" then
      write = write.result
    end
    if write and write.tag == "none" and not schema.none then
      fault.at(write.place, "%s: expected %s, got none", registry.path(keys),
        kinds.expected(schema))
    end
    if not write or write.tag ~= "table" then
      return
    end
    for _, key in ipairs(environment.sorted_keys(write.children)) do
      -- a field of a type must exist, unless a stronger layer has replaced the record, perhaps by
      -- another type
      local of_type = schema.types and not schema.fields[key]
      if not of_type or index >= first_live(job, keys) then
        keys[#keys + 1] = key
        local child, inner = write.children[key], job.fold:schema(keys)
        if not inner then
          local shown = registry.path(keys, #keys - 1)
          fault.at(child.place, "%s.%s: %s has no such field; %s", shown,
            key, shown, job.fold:type_note(keys, #keys - 1))
        end
        walk(index, child, keys, inner)
        keys[#keys] = nil
      end
    end
  end
  for index, one in ipairs(job.layers) do
    walk(index, one.write, {}, registry.get().root)
  end
end

-- A chain of the fold in the form of settings: places as texts, reads as a list.
local function shown_chain(chain)
  local out = {}
  for i, link in ipairs(chain) do
    local reads = link.reads and next(link.reads) ~= nil and environment.sorted_keys(link.reads)
      or nil
    out[i] = { at = link.place and place.text(link.place) or link.source,
      raw = link.value, reads = reads,
      command_line = link.place and link.place.argument ~= nil or nil,
      set = link.place ~= nil or nil, replace = link.replace }
  end
  return out
end

-- Step 4: collects every leaf with its chain, and the leaves of removed map entries.
local function collect(job)
  job.leaves, job.removed = {}, {}
  job.fold:each(function(keys, schema, value, chain)
    if value == marker.absent then
      job.removed[#job.removed + 1] = { path = registry.path(keys), chain = shown_chain(chain) }
      return
    end
    local row = schema.row
    -- entries inside maps have the row of the map
    if not row or not row.path then
      for count = #keys, 1, -1 do
        local outer = job.fold:schema(keys, count)
        if outer.row and outer.row.path then
          row = outer.row
          break
        end
      end
    end
    job.leaves[#job.leaves + 1] = { path = registry.path(keys),
      keys = table.move(keys, 1, #keys, 1, {}), schema = schema, row = row,
      affects = row.affects, value = value, chain = shown_chain(chain) }
  end)
  table.sort(job.removed, function(a, b) return a.path < b.path end)
end

-- Step 7: the settings of a recipe with stages contain their names and hashes.
local function add_stages(job)
  if not is_outer(job) then
    return
  end
  local list = {}
  for i, entry in ipairs(job.stages) do
    list[i] = { name = entry.name, hash = bake.bake(job.file, job.arguments,
      entry.name, job.loader).hash }
  end
  for _, leaf in ipairs(job.leaves) do
    if leaf.path == "stages" then
      leaf.value = list
      leaf.chain[#leaf.chain + 1] = { at = place.text(job.stages.place), raw = list, set = true }
    end
  end
end

-- the value at a path; for a map true if it has an entry
local function value_at(job, path)
  for _, leaf in ipairs(job.leaves) do
    if leaf.path == path then
      return leaf.value
    elseif leaf.path:sub(1, #path + 1) == path .. "." then
      return true
    end
  end
  return marker.none
end

-- Is a value from this command line? An argument for all stages may have a meaning in another
-- stage, and an argument of an earlier launch may have had one then.
local function is_own(job, link)
  if not link.command_line or job.stage and not stages.split(link.at:gsub("^%-+", "")) then
    return false
  end
  for _, one in ipairs(job.arguments) do
    if one.argument == link.at and one.taken then
      return false
    end
  end
  return true
end

-- Step 8: notes about fields without a meaning here, and about fields that nothing reads under
-- these settings.
local function note_unread(job)
  job.notes = {}
  if is_outer(job) then
    return
  end
  -- only a few fields decide whether others are read, so their values are cached
  local known = setmetatable({}, { __index = function(values, path)
    values[path] = value_at(job, path)
    return values[path]
  end })
  for _, leaf in ipairs(job.leaves) do
    local link, row = leaf.chain[#leaf.chain], leaf.row
    if link.set and (row.no_meaning or row.when) then
      local asks = kinds.show(leaf.value) ~= kinds.show(row.default)
      if row.no_meaning and asks then
        job.notes[#job.notes + 1] = ("%s: %s has no meaning here: %s"):format(link.at,
          leaf.path, row.no_meaning)
      end
      local text = leaf.value ~= marker.none and when.unread(row, leaf.path, function(path)
        return known[path]
      end)
      -- a value that is off, or the default, does not ask for anything
      if text and asks and is_own(job, link) then
        fault.usage("%s: %s", link.at, text)
      end
      job.notes[#job.notes + 1] = text and asks and link.at .. ": " .. text or nil
    end
  end
end

-- Step 9: refuses lengths whose times are all 0.
local function check_lengths(job)
  local leaf, text = nil, nil
  if not is_outer(job) then
    leaf, text = lost_length(job.leaves)
  end
  if leaf then
    local link = leaf.chain[#leaf.chain]
    local raise = link.command_line and fault.usage or fault.recipe
    raise("%s: %s", link.at, text)
  end
end

-- Step 10: adds notes about resolutions that are not declared.
local function note_resolutions(job)
  if is_outer(job) then
    return
  end
  for _, one in ipairs(unknown_resolutions(job.leaves)) do
    for _, leaf in ipairs(job.leaves) do
      if leaf.path == one.path then
        job.notes[#job.notes + 1] = ("%s: %s"):format(leaf.chain[#leaf.chain].at, one.text)
      end
    end
  end
end

-- Step 11: if the file replaces other settings, the values taken from them keep their origins; an
-- argument is appended to the chain that it overrides.
local function inherit(job)
  local moved = job.inherits and job.inherits.moved
  for _, leaf in ipairs(moved and job.leaves or {}) do
    local record, field = leaf.path:match("^([%w_]+)%.(.*)$")
    local from = moved[record]
    local known, chain = pcall(job.inherits.settings.chain, job.inherits.settings,
      from and from .. "." .. field or leaf.path)
    local link = leaf.chain[#leaf.chain]
    if known and link.set then
      leaf.chain = { table.unpack(chain) }
      leaf.chain[#leaf.chain + 1] = not from and link.command_line and link or nil
    end
  end
end

-- Step 3: from here on values are computed on demand.
local function start_fold(job) job.fold = fold.new(job.layers) end

local steps = { load_files, add_overrides, start_fold, collect, add_environment,
  check_writes, add_stages, note_unread, check_lengths, note_resolutions,
  inherit }

--- Bakes in this process.
---@param file table      from files.root
---@param arguments table[]  {key, text, argument}
---@param stage string|nil   bake this stage of the recipe
---@param files_so_far table|nil  the loader of a bake that has read the same files
---@param inherits table|nil  settings that the file replaces: {settings, moved}, as in
---   settings.with
---@return table settings
function bake.bake(file, arguments, stage, files_so_far, inherits)
  local job = { file = file, arguments = arguments, stage = stage, inherits = inherits,
    loader = files_so_far or loader.new() }
  -- there are many short-lived tables: frequent collection costs a fifth of a bake
  local pause = collectgarbage("setpause", 1000)
  local ok, problem = pcall(environment.within_budget, function()
    for _, step in ipairs(steps) do
      step(job)
    end
  end)
  collectgarbage("setpause", pause)
  if not ok then
    error(fault.adopt(problem), 0)
  end
  local texts = {}
  for i, argument in ipairs(arguments) do
    texts[i] = argument.argument
  end
  return frozen.new(job.leaves, { notes = job.notes, recipe = file.shown,
    hash = hash.of(job.leaves), arguments = texts }, job.removed)
end

return bake
