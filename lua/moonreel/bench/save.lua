--- What a save takes from training: the call of an asynchronous save against a plain copy of the same state.
-- Ref: reliability.md, promise P7.
-- @module moonreel.bench.save
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"

local save = {}

local TENSORS, ELEMENTS = 64, 1 << 20  -- 256 MiB of f32
local SAVES = 7

-- the saves themselves: one call each, none while the writer works
local function stalls(saver, rows, seconds)
  local best, began = math.huge, base.now_s()
  saver:prepare(rows)
  for step = 1, SAVES do
    if step > 1 and base.now_s() - began > seconds then break end
    local at = base.now_s()
    saver:save{step = step, tensors = rows, meta = {recipe_hash = "", dataset_fingerprint = "", sampler = "", seed = 0,
      machine = {isa = "", threads = 0, libraries = {}}}}
    best = math.min(best, base.now_s() - at)
    saver:wait()
  end
  return best
end

--- Measure.
---@param options table  seconds: time to spend on the saves
---@return table  bytes, copy_s (one thread, both sides touched), stall_s, limit_s (1.3 x copy + 5 ms)
function save.measure(options)
  local state, copy, rows = {}, {}, {}
  for i = 1, TENSORS do
    state[i], copy[i] = T.new("f32", {ELEMENTS}), T.new("f32", {ELEMENTS})
    local ptr, bytes = state[i]:ptr()
    rows[i] = {name = ("t%03d"):format(i), dtype = "F32", shape = {ELEMENTS}, ptr = ptr, bytes = bytes}
  end
  local copy_s = math.huge
  for _ = 1, 5 do
    local at = base.now_s()
    for i = 1, TENSORS do copy[i]:copy_from(state[i]) end
    copy_s = math.min(copy_s, base.now_s() - at)
  end
  local dir = os.tmpname()
  os.remove(dir)
  base.make_dir(dir)
  local ok, result = pcall(function()
    local saver <close> = ckpt.saver(dir)
    return stalls(saver, rows, options.seconds)
  end)
  base.remove_dir(dir)
  if not ok then error(result, 0) end
  return {bytes = TENSORS * ELEMENTS * 4, copy_s = copy_s, stall_s = result, limit_s = 1.3 * copy_s + 0.005}
end

return save
