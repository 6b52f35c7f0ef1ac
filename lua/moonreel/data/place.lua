--- Finds where a run continues in its data, if data, bucket rule or seed may have changed since its
-- checkpoint. Ref: dataplane 4.8.
-- @module moonreel.data.place
local base = require "moonreel.core.base"
local buckets = require "moonreel.data.buckets"
local core = require "moonreel.core.loader"
local core_index = require "moonreel.core.index"
local exact = require "moonreel.text.exact"

local place = {}

--- Splits a text about several sources: the part of each, by name. A text about one source without
-- a name is its part.
---@param text string
---@return table parts   name -> text
---@return string head   the text in front of them
function place.split(text)
  local parts, name, head = {}, nil, ""
  for line in text:gmatch("[^\n]*\n?") do
    local next_name = line:match("^source (%S+)\n$")
    if next_name then
      name = next_name
      parts[name] = ""
    elseif name then
      parts[name] = parts[name] .. line
    else
      head = head .. line
    end
  end
  return name and parts or { [""] = text }, name and head or ""
end

--- Joins such parts.
---@param parts table  name -> text
---@param head string
---@return string
function place.join(parts, head)
  if parts[""] then
    return parts[""]
  end
  local out, names = { head }, {}
  for name in pairs(parts) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local text = parts[name]
    out[#out + 1] = ("source %s\n%s%s"):format(name, text, text:sub(-1) == "\n" and "" or "\n")
  end
  return table.concat(out)
end

-- The samples of an index that belong to a source; nil: all of them. Also the smallest and the
-- largest value of its quantiles, if there are any.
local function members_of(index, source)
  local members, low, high
  if source.quantiles then
    members, low, high = core.quantiles(index, source.quantiles)
  end
  if source.hold_back then
    members = core.hold(index, { hold_back = source.hold_back, held = source.held, of = members })
  end
  return members, low, high
end

--- Finds the rows of its index that belong to a source, if quantiles or dataset.hold_back select
-- some: source.members.
---@param source table  from moonreel.settings.sources, with its index; held: it has the samples
---   that are held back instead of the others
---@return string|nil note  for the log
function place.pick(source)
  local low, high
  source.members, low, high = members_of(source.index.core, source)
  if not source.members then
    return nil
  end
  local q, hold = source.quantiles, source.hold_back
  return ("%s%d of %d rows%s%s"):format(source.name ~= "" and ("source %s: "):format(source.name)
    or "", source.members:count(), #source.index,
    q and (", %s from %s to %s"):format(q.column, exact(low), exact(high)) or "",
    hold and (source.held and ", the samples held back (dataset.hold_back = %g)"
      or ", without the samples held back (dataset.hold_back = %g)"):format(hold) or "")
end

-- parses a state of the order
local function read(state)
  local function value(name) return state:match("\n" .. name .. " (%S+)") end
  local seen, hash = state:match("\nseen (%d+) (%x+)")
  return { fp_order = value "fp_order", fp_set = value "fp_set", rule = value "rule",
    seed = math.tointeger(value "seed"), epoch = math.tointeger(value "epoch"),
    seen = seen and "seen-" .. hash .. ".bits" }
end

--- The epoch of a state of a run's order.
---@param state string  of one source
---@return integer
function place.epoch(state)
  local parts = place.split(state)
  if not parts[""] then
    base.raise("MR_E_USAGE", "the checkpoint has several sources, each in its own epoch; "
      .. "try: start_epoch")
  end
  return read(parts[""]).epoch
end

-- the list that a state names: in the folder of this run, or copied there from that of another
local function list_of(at, folder, source)
  local path = at.seen and folder .. "/" .. at.seen
  if path and not base.exists(path) and source and base.exists(source .. "/" .. at.seen) then
    base.replace_file(path, base.read_file(source .. "/" .. at.seen))
  end
  return path
end

local function differs(path, common)
  return ("%s holds other samples than the data of the checkpoint: %d are in both, %d are new, %d "
    .. "have vanished; try: data_change = \"carry\" to train the rest of this epoch without those "
    .. "already trained, \"next\" to begin the next epoch, \"restart\" to begin the first one")
    :format(path, common.both, common.new, common.vanished)
end

-- the index of a state; needed only for carrying samples over
local function old_index(at, given)
  if at.fp_order == given.index.meta.fp_order then
    return given.index.core
  end
  local path = given.was.source and given.was.source.path
  local good, old = pcall(core_index.open, path or "")
  if not good or old:facts().fp_order ~= at.fp_order then
    base.raise("MR_E_DATA", ("%s: is no longer the index of the checkpoint, and %s is another "
      .. "index, so the samples that this epoch has trained are unknown; try: restore the old "
      .. "index at its path, or data_change = \"next\""):format(path or "none",
      given.index.meta.path))
  end
  return old
end

-- Options of one source that continues at its state: {state, excluded, seen, epoch}, and a note on
-- carried samples, for the log.
local function place_one(given)
  local at, rule = read(given.state), buckets.rule(given.rule)
  local same_data = at.fp_order == given.index.meta.fp_order
  local members = given.members
  local same_set = at.fp_set == given.index.meta.fp_set
  -- the lists of a reference's order cannot be carried over
  local listed = given.rule.reference or given.was.rule.reference
  local differs_in = at.seed ~= given.seed or not same_set
    or listed and at.rule ~= rule:hash(members)
  if differs_in and (given.change == "next" or given.change == "restart") then
    local epoch = given.change == "next" and at.epoch + 1 or 0
    return { epoch = epoch }, ("the data begin again with epoch %d"):format(epoch)
  end
  local options = { state = given.state, excluded = given.excluded,
    seen = list_of(at, given.folder, given.source) }
  if at.seed ~= given.seed or same_data and at.rule == rule:hash(members) then
    return options
  end
  local old = old_index(at, given)
  if not same_set and given.change ~= "carry" then
    base.raise("MR_E_DATA", differs(given.index.meta.path, old:common(given.index.core)))
  end
  local count
  options.state, options.seen, count = core.carry(old, buckets.rule(given.was.rule),
    given.index.core, rule, { state = given.state, excluded = given.excluded, seen = options.seen,
      folder = given.folder, seed = given.seed, members = members,
      was_members = given.was.source and members_of(old, given.was.source) or nil })
  if old ~= given.index.core then
    old:close()
  end
  return options, ("%s changed: %d samples that epoch %d has already trained are left out of the "
    .. "rest of it"):format(same_data and "the bucket rule" or "the data set", count, at.epoch)
end

-- The present name of a source of the checkpoint with the same samples, if one of the two has no
-- name. So a run of one index can continue as one source among others, and the reverse.
local function renamed(parts, list)
  for name, text in pairs(parts) do
    for _, source in ipairs(list) do
      local alone = name == "" or source.name == ""
      if alone and (#list == 1 and name == "" or read(text).fp_set == source.index.meta.fp_set) then
        return name, source.name
      end
    end
  end
end

-- the parts of a checkpoint about each source, by their present names
local function parts_of(given)
  local parts, head = place.split(given.state)
  local excluded = given.excluded and place.split(given.excluded)
  local from, to = renamed(parts, given.sources)
  if from and from ~= to then
    parts = { [to] = parts[from] }
    excluded = excluded and { [to] = excluded[from] }
    head = to ~= "" and "moonreel blend 1\nsamples 0\n" or ""
  end
  return parts, head, excluded, from
end

-- refuses sources of the checkpoint that the recipe no longer has
local function check_gone(given, parts)
  local there = {}
  for _, source in ipairs(given.sources) do
    there[source.name] = true
  end
  for name, text in pairs(parts) do
    if not there[name] and given.change == "refuse" then
      base.raise("MR_E_DATA", ("%s of the checkpoint, which was in epoch %d, is no longer a source "
        .. "of the recipe; expected it in dataset.sources; try: data_change = \"carry\" to "
        .. "continue without it"):format(name == "" and "the data"
          or ("source '%s'"):format(name), read(text).epoch))
    elseif not there[name] then
      parts[name] = nil
    end
  end
end

--- Finds where all sources of a run continue.
---@param given table  sources: {{name, index, change}, ...}, rule (options of buckets.rule), seed:
---   the present ones; was: the checkpoint's rule, and of(name): {path, quantiles} of a source;
---   state, excluded: its loader's; change: "refuse" | "carry" | "next" | "restart", for a removed
---   source; folder: of the run, with the lists of trained samples; source: of the run that made
---   the checkpoint; blame(source, f, ...): calls f so that its errors name the source's field
---@return table found  state, excluded: for data.loader; seen, epoch: by name of the source; notes:
---   on carried samples, for the log
function place.all(given)
  local parts, head, excluded, renamed_from = parts_of(given)
  local out = { seen = {}, epoch = {}, notes = {} }
  given.blame(given.sources[1], check_gone, given, parts)
  excluded = excluded or {}
  for _, source in ipairs(given.sources) do
    local named = source.name == "" and "" or ("source %s: "):format(source.name)
    if parts[source.name] then
      local options, note = given.blame(source, place_one, { index = source.index,
        rule = given.rule, seed = given.seed, change = source.change, folder = given.folder,
        source = given.source, state = parts[source.name], excluded = excluded[source.name],
        members = source.members,
        was = { rule = given.was.rule, source = given.was.of(renamed_from or source.name) } })
      parts[source.name], excluded[source.name] = options.state, options.excluded
      out.seen[source.name], out.epoch[source.name] = options.seen, options.epoch
      out.notes[#out.notes + 1] = note and named .. note
    else
      out.notes[#out.notes + 1] = named .. "is new, and begins with its first epoch"
    end
  end
  out.state = next(parts) and place.join(parts, head) or nil
  out.excluded = given.excluded and place.join(excluded, "")
  return out
end

return place
