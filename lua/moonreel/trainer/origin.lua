--- The start of a run: from nothing, from weights alone, or from a whole state.
-- Each function is one named step of the trainer and takes the run `r`.
-- @module moonreel.trainer.origin
local ckpt = require "moonreel.ckpt"
local base = require "moonreel.core.base"
local blame = require "moonreel.settings.blame"
local check = require "moonreel.trainer.check"
local directory = require "moonreel.trainer.directory"

local origin = {}

--- The checkpoint that `load` or `ckpt_path` names; recipe.previous is the newest checkpoint of the
-- stage before.
---@param r mr.Run
---@param field string  load, ckpt_path, vae.from_pretrained
---@return string|nil
function origin.of(r, field)
  local spec = r.settings
  for key in field:gmatch("[^.]+") do
    spec = spec[key]
  end
  if spec ~= "recipe.previous" then
    return spec
  end
  if r.stage and r.stage.previous then
    return r.stage.previous
  end
  base.raise("MR_E_USAGE", ("%s: %s = recipe.previous: no stage before "
    .. "this one has left a checkpoint; "
    .. "try: --load RUN, or another %s"):format(r.settings:origin(field), field, field))
end

--- Is the checkpoint loaded without epoch, step and position in the data?
---@param s table  settings
---@return boolean
function origin.from_scratch(s)
  return s.start_from_scratch or s.start_step ~= nil or s.start_epoch ~= nil
end

-- these fields say which parts of a whole state are not used
local function expect_load(s)
  for _, field in ipairs{"start_from_scratch", "start_step", "start_epoch"} do
    if s[field] then
      blame.raise(s, field, "MR_E_USAGE", "%s = %s needs load, which is not set: %s; try: "
        .. "--load RUN, or leave it out", field, s[field], s.ckpt_path
        and "ckpt_path takes weights alone, and begins with the data" or "a new run begins with "
        .. "step 0 and its data in any case")
    end
  end
end

--- Finds what the run starts from: nothing, weights alone, or a whole state.
function origin.find(r)
  local s = r.settings
  -- a stage with a checkpoint continues from it, whatever its beginning was
  if r.stage and r.stage.begun then
    r.found = ckpt.resolve(r.stage.dir)
    return
  end
  local load, weights = origin.of(r, "load"), origin.of(r, "ckpt_path")
  if load and weights then
    base.raise("MR_E_USAGE", "load and ckpt_path are both set; load takes the whole state, "
      .. "ckpt_path weights alone; try: one of the two")
  end
  if not load then
    expect_load(s)
  end
  r.scratch = origin.from_scratch(s)
  for _, field in ipairs{"start_step", "start_epoch"} do
    if s.start_from_scratch and (s[field] or 0) > 0 then
      blame.raise(s, field, "MR_E_USAGE", "%s = %d contradicts start_from_scratch = true, which "
        .. "begins with step 0 and epoch 0; try: one of the two", field, s[field])
    end
  end
  if load then
    local found, reason = blame.field(s, "load", ckpt.resolve, load, s.outputs, r.name)
    if found then
      r.found = found
    else
      r.notes[#r.notes + 1] = reason
    end
  elseif weights then
    r.found_weights = blame.field(s, "ckpt_path", ckpt.resolve, weights, s.outputs, r.name)
  end
end

-- Opens the checkpoint. The first rank verifies it and may move damaged checkpoints of its own
-- directory aside; the other ranks open the same one, and verify each part as they read it.
local function open_source(r, found)
  local source, notes
  local path = r.team:first(function()
    source, notes = ckpt.load(found, r.continues and r.lock or nil)
    return {source.path}
  end)[1]
  return source or ckpt.open(path), notes or {}
end

-- the checkpoint that is continued may be older than the one from which the launch took its values
local function take_values(r)
  local goes_on = r.found and r.launch and (not r.stage or r.stage.begun)
  local note = goes_on and r.launch:take(r.source)
  if not note then
    return
  end
  r.settings = r.launch:part(r.stage and r.stage.name)
  check.run(r)
  r.notes[#r.notes + 1] = note
  if r.team.leads and not r.continues then
    directory.write_settings(r)
  end
  if r.team.leads and r.stage then
    base.replace_file(r.stage.outer .. "/settings.json", r.launch.settings:to_json())
  end
end

--- Opens the checkpoint to start from, now that damaged checkpoints of the run's directory may be
-- moved aside.
function origin.source(r)
  local found = r.found or r.found_weights
  if not found then
    return
  end
  local source, notes = blame.field(r.settings, r.found and "load" or "ckpt_path", open_source, r,
    found)
  r.source = r:keep(source)
  for _, note in ipairs(notes) do
    r.notes[#r.notes + 1] = note
  end
  if r.found and not source.manifest then
    base.raise("MR_E_USAGE",
      ("%s: this file has weights alone, and load needs a whole state; try: --ckpt-path %s"):format(
        source.path, source.path))
  end
  take_values(r)
end

-- the effect of a value that differs
local EFFECTS <const> = { free = "the run continues with it",
  warn = "the run continues with it, and differs from here on", refuse = "refused" }

-- reports what differs from the settings that made a checkpoint; refuses what cannot continue
local function compare_settings(r, text)
  local then_settings = require("moonreel.settings").from_json(text, r.source.path)
  local refused, only_position = {}, true
  for _, row in ipairs(require "moonreel.settings.difference"(then_settings, r.settings)) do
    local change = r.settings.data_change
    local leaves = r.scratch or change == "next" or change == "restart"
    local resume = row.position and leaves and "free" or row.resume
    local effect = resume == "refuse" and row.position and "the position in the data depends on it"
      or EFFECTS[resume]
    local line = ("%s: %s when the checkpoint was made, %s now by %s: %s"):format(row.path,
      row.was or "absent", row.now or "absent",
      row.at, effect)
    if resume == "refuse" then
      refused[#refused + 1] = line
      only_position = only_position and row.position
    elseif row.affects == "run" or resume == "warn" then
      r.progress:say(line)
    end
  end
  if #refused > 0 then
    local path, leave = r.source.path, only_position and "data_change=next or "
      .. "--start-from-scratch to drop the position, or " or ""
    base.raise("MR_E_RECIPE", ("%s does not continue under this recipe:\n  %s\n  try: "
      .. "%s--ckpt-path %s for weights alone"):format(path,
      table.concat(refused, "\n  "), leave, path))
  end
end

--- Compares the recipe with the one that made the checkpoint.
function origin.compare(r)
  if not r.found then
    return
  end
  local meta = r.source.manifest
  if meta.settings then
    compare_settings(r, meta.settings)
  end
end

return origin
