--- Checks a stage as far as possible before it begins.
-- @module moonreel.trainer.rehearse
local team = require "moonreel.comm.team"
local base = require "moonreel.core.base"
local data = require "moonreel.data"
local place = require "moonreel.data.place"
local blame = require "moonreel.settings.blame"
local sources = require "moonreel.settings.sources"
local check = require "moonreel.trainer.check"
local origin = require "moonreel.trainer.origin"
local samples = require "moonreel.trainer.samples"
local setup = require "moonreel.trainer.setup"

-- A stage that loads the whole state of the stage before also takes its position in the data, which
-- counts the samples of one index.
local function check_swap(r, before)
  local s = r.settings
  if r.scratch then
    return
  end
  for _, was in ipairs(sources.of(before)) do
    local path, input = samples.index_of(was.path)
    for _, source in ipairs(r.sources) do
      local other <close> = source.name == was.name and source.change == "refuse" and not input
        and data.open(path) or nil
      if other and other.meta.fp_set ~= source.index.meta.fp_set then
        blame.raise(s, source.field, "MR_E_DATA", "%s = %q holds other samples than %q of the "
          .. "previous stage, whose position this stage continues by load = recipe.previous (%s); "
          .. "try: start_from_scratch = true, data_change = \"carry\", or ckpt_path = "
          .. "recipe.previous", source.field, source.path, was.path, blame.place(s, "load"))
      end
    end
  end
end

-- Opens the sources of a stage that exist; indexes of the others are built later from tables.
local function open_there(r, kept)
  local whole = true
  r.sources = sources.of(r.settings)
  for _, source in ipairs(r.sources) do
    local path, input = samples.index_of(source.path)
    if not input then
      source.index = blame.field(r.settings, source.field, data.open, path)
      kept[#kept + 1] = source.index
      blame.field(r.settings, source.field, place.pick, source)
    elseif not base.exists(input) then
      blame.raise(r.settings, source.field, "MR_E_DATA", "%s: there is no such file or folder, "
        .. "and no index %s", input, path)
    else
      whole = false
    end
  end
  return whole
end

--- Checks everything that can be known about a stage before it begins, without writing: fields,
-- weights, models, data, buckets.
---@param settings table  baked
---@param stage table     as trainer.run takes it; previous = true: the stage before will leave a
---   checkpoint, and `before` are its settings
local function rehearse(settings, stage)
  local r = {settings = settings, stage = stage, notes = {}, team = team.new()}
  check.run(r)
  local waits = stage.previous == true and (settings.load == "recipe.previous"
    or settings.ckpt_path == "recipe.previous")
  r.scratch = origin.from_scratch(settings)
  if not waits then
    origin.find(r)
  end
  setup.models_of(settings, "f32")
  local kept <close> = setmetatable({}, {__close = function(list)
    for _, index in ipairs(list) do
      index:close()
    end
  end})
  if open_there(r, kept) then
    r.index = r.sources[1].index
    samples.open_loader(r, {epochs = 1}):close()
    if waits and settings.load then
      check_swap(r, stage.before)
    end
  end
end

return rehearse
