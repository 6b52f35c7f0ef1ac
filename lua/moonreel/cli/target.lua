--- Resolves RECIPE|RUN for commands on data: settings, and the index that they name.
-- @module moonreel.cli.target
local base = require "moonreel.core.base"

local target = {}

-- the settings file of a run
local function settings_path(name) return name .. "/settings.json" end

--- What RECIPE|RUN can stand for, in the form that settings.bake takes.
---@param name string
---@return table
function target.may_be(name) return { what = "recipe or run", path = settings_path(name) } end

--- Settings of a recipe with the values of the command line, or of a run as it was launched.
---@param parsed table  from words.parse
---@param name string   RECIPE or RUN
---@param stage? string  of a recipe that has stages
---@return table settings
---@return string|nil run  its directory
function target.settings(parsed, name, stage)
  local settings = require "moonreel.settings"
  name = require("moonreel.runs.find").named(name) or name
  if base.exists(settings_path(name)) then
    return settings.load(settings_path(name)), name
  end
  local baked = settings.bake(name, parsed.overrides, { stage = stage,
    may_be = target.may_be(name) })
  if baked.stages and not stage then
    local names = {}
    for i, one in ipairs(baked.stages) do
      names[i] = one.name
    end
    base.raise("MR_E_USAGE", ("%s has stages; try: --stage %s"):format(name,
      table.concat(names, ", --stage ")))
  end
  return baked
end

--- The run that a command is about, in the form in which hosts are asked for it: its directory or
-- its launch.
---@param parsed table   from words.parse
---@param command table  the command: name, usage
---@return table  {dir}, or {launch: the number of a process} if the run has no directory
function target.run(parsed, command)
  local name = parsed.positional[1]
  if #parsed.positional ~= 1 then
    base.raise("MR_E_USAGE", ("%s: expected one run, got %d; usage: moonreel %s"):format(
      command.name, #parsed.positional, command.usage))
  end
  local launch = math.tointeger(tonumber(name))
  if launch and #require("moonreel.life").of_launch(launch) > 0 then
    return { launch = launch }
  end
  local dir = require("moonreel.runs.find").named(name)
  if dir and base.exists(dir .. "/lock") then
    return { dir = dir }
  end
  base.raise("MR_E_USAGE", ("%s: %s is neither a run in outputs/ nor a launch of this host; "
    .. "try: the folder of a run, or moonreel %s, which lists what runs here"):format(command.name,
    name, command.name))
end

--- Prints what runs on this host, for commands that are about one of these runs.
---@param opts table  json
---@return integer exit code
function target.list(opts)
  local rows = require("moonreel.life").rows()
  if #rows == 0 and not opts.json then
    io.write("nothing runs on this host\n")
  else
    require("moonreel.text.table").print({ { key = "launch", right = true }, { key = "ranks" },
      { key = "phase" }, { key = "step", right = true }, { key = "run" }, { key = "command" } },
      rows, opts)
  end
  return 0
end

--- The hosts to ask about a run: those of --hostfile, else those that the run was started with,
-- else this one.
---@param opts table  from survey.options
---@param run table   from target.run
---@return table      for survey.open
function target.hosts(opts, run)
  local settings = run.dir and base.exists(settings_path(run.dir))
    and require("moonreel.settings").load(settings_path(run.dir))
  return setmetatable({ hostfile = opts.hostfile or settings and settings.hostfile or nil },
    { __index = opts })
end

--- Opens the sources of settings, or the index of --data as the only one.
---@param settings table
---@param given? string  --data
---@return table[] list  the sources of moonreel.settings.sources, each with its index; closing the
---   list closes them
function target.sources(settings, given)
  local list = given and { { name = "", path = given } }
    or require("moonreel.settings.sources").of(settings)
  if #list == 0 then
    base.raise("MR_E_USAGE", "dataset.data_path is not set, so there is no index to read; try: "
      .. "--data NAME.mrx")
  end
  for _, source in ipairs(list) do
    local path, input = require("moonreel.trainer.samples").index_of(source.path)
    if input then
      base.raise("MR_E_DATA", ("there is no index %s; try: moonreel data ingest %s -o %s"):format(
        path,
        source.path, path))
    end
    source.index = require("moonreel.data").open(path)
    require("moonreel.data.place").pick(source)
  end
  return setmetatable(list, { __close = function(all)
    for _, source in ipairs(all) do
      source.index:close()
    end
  end })
end

--- What a run, or a stage of it, was trained on, from its journal, its settings and its index.
---@param part table     a part from moonreel.runs.find.parts
---@param given? string  --data
---@return table trained {record: from moonreel.runs.audit.read, settings, list: its sources, order:
---   at its beginning}; closing it closes list and order; raises MR_E_DATA if the index holds other
---   samples than those that a launch was trained on
function target.trained(part, given)
  local settings = require("moonreel.settings").load(settings_path(part.dir))
  local record = require("moonreel.runs.audit").read(part.dir)
  local list, prints = target.sources(settings, given), {}
  for i, source in ipairs(list) do
    prints[i] = source.index.meta.fp_order
  end
  local trained = setmetatable({ record = record, settings = settings, list = list },
    { __close = function(self)
      getmetatable(list).__close(list)
      if self.order then
        self.order:close()
      end
    end })
  local here = table.concat(prints, " ")
  for i, launch in ipairs(record.launches) do
    if launch.dataset and launch.dataset ~= here then
      getmetatable(trained).__close(trained)
      base.raise("MR_E_DATA", ("%s: launch %d trained on other samples (fingerprint %s) than the "
        .. "index holds (%s); try: --data NAME.mrx, the index with which it was trained"):format(
        part.dir, i,
        tostring(launch.dataset), here))
    end
  end
  trained.order = require("moonreel.data.order").open(settings, list,
    part.dir .. "/quarantine.jsonl", math.max(1, record.micros // settings.accumulate))
  return trained
end

--- One of several sources: the one with this name, or the only one that has this row.
---@param list table[]
---@param name? string  --source
---@param id? string    a row, as target.row takes it
---@return table source
---@return table|nil row
function target.source(list, name, id)
  local names, problem = {}, nil
  for i, source in ipairs(list) do
    names[i] = source.name
    if source.name == name or not name and (#list == 1 or not tonumber(id)) then
      local good, row = pcall(target.row, source.index, id)
      if good then
        return source, row
      end
      problem = row
    end
  end
  if problem then
    error(problem, 0)
  elseif name and names[1] == "" then
    base.raise("MR_E_USAGE", ("--source %s: the recipe has no dataset.sources; try: leave --source "
      .. "out"):format(name))
  end
  base.raise("MR_E_USAGE", ("%s; expected --source %s"):format(name and ("--source %s: "
    .. "dataset.sources has no source of this name"):format(name)
    or ("%s does not say which of several sources its row is from"):format(id),
    table.concat(names, ", or ")))
end

--- A row by its number, counted from 1, by its key, or by its path.
---@param index moonreel.Index
---@param name string
---@return table row
function target.row(index, name)
  local i = math.tointeger(tonumber(name))
  if i and i >= 1 and i <= #index then
    return index:row(i)
  end
  if name:match("^%x+$") and #name == 32 then
    local found = index.core:find(name:lower())
    if found then
      return index:row(found)
    end
  elseif not i then
    for k = 1, #index do
      local row = index:row(k)
      if row.path == name or row.file == name or row.path:match("[^/]*$") == name then
        return row
      end
    end
  end
  base.raise("MR_E_USAGE", ("%s: there is no sample '%s'; expected a row from 1 to %d, a key of 32 "
    .. "hexadecimal digits, or a path"):format(index.meta.path, name, #index))
end

return target
