--- Where a run goes on in its data, when data, bucket rule or seed may have changed since its
-- checkpoint. Ref: dataplane 4.8.
-- @module moonreel.data.place
local base = require "moonreel.core.base"
local buckets = require "moonreel.data.buckets"
local core = require "moonreel.core.loader"
local core_index = require "moonreel.core.index"

local place = {}

-- what a state of the order says of itself
local function read(state)
  local function value(name) return state:match("\n" .. name .. " (%S+)") end
  local seen, hash = state:match("\nseen (%d+) (%x+)")
  return { fp_order = value "fp_order", fp_set = value "fp_set", rule = value "rule",
    seed = math.tointeger(value "seed"), epoch = math.tointeger(value "epoch"),
    seen = seen and "seen-" .. hash .. ".bits" }
end

-- the list that a state names: in the folder of this run, or brought there from another one's
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
    .. "that it had, \"next\" to begin the next epoch, \"restart\" to begin the first one")
    :format(path, common.both, common.new, common.vanished)
end

-- the index that a state is of; only what is carried over needs it
local function old_index(at, given)
  if at.fp_order == given.index.meta.fp_order then
    return given.index.core
  end
  local path = given.was.data_path
  local good, old = pcall(core_index.open, path or "")
  if not good or old:facts().fp_order ~= at.fp_order then
    base.raise("MR_E_DATA", ("%s: is not the index of the checkpoint any more, and %s is another "
      .. "one: which samples this epoch has trained cannot be told; try: that index at its place, "
      .. "or data_change = \"next\""):format(path or "none", given.index.meta.path))
  end
  return old
end

--- Options of data.loader that go on where a checkpoint stands.
---@param given table  index, rule (options of buckets.rule), seed: the present ones; was: the
---   checkpoint's {data_path, rule}; state, excluded: its loader's; change: "refuse" | "carry" |
---   "next" | "restart"; folder: of the run, where lists of trained samples lie; source: of the run
---   that made the checkpoint
---@return table options  state, excluded, seen, epoch
---@return string|nil note  what was carried over, for the log
function place.of(given)
  local at, rule = read(given.state), buckets.rule(given.rule)
  local same_data = at.fp_order == given.index.meta.fp_order
  local same_set = at.fp_set == given.index.meta.fp_set
  if (at.seed ~= given.seed or not same_set)
      and (given.change == "next" or given.change == "restart") then
    local epoch = given.change == "next" and at.epoch + 1 or 0
    return { epoch = epoch }, ("the data begin anew with epoch %d"):format(epoch)
  end
  local options = { state = given.state, excluded = given.excluded,
    seen = list_of(at, given.folder, given.source) }
  if at.seed ~= given.seed or same_data and at.rule == rule:hash() then
    return options
  end
  local old = old_index(at, given)
  if not same_set and given.change ~= "carry" then
    base.raise("MR_E_DATA", differs(given.index.meta.path, old:common(given.index.core)))
  end
  local count
  options.state, options.seen, count = core.carry(old, buckets.rule(given.was.rule),
    given.index.core, rule, { state = given.state, excluded = given.excluded, seen = options.seen,
      folder = given.folder, seed = given.seed })
  if old ~= given.index.core then
    old:close()
  end
  return options, ("%s changed: %d samples that epoch %d has trained are left out of the rest of "
    .. "it"):format(same_data and "the bucket rule" or "the data set", count, at.epoch)
end

return place
