--- What a save takes from training: the call of an asynchronous save against a plain copy of the
-- same state. Ref: reliability.md, promise P7.
-- @module moonreel.bench.save
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local regions = require "moonreel.optim.regions"
local state = require "moonreel.trainer.state"

local save = {}

local TENSORS, ELEMENTS = 64, 1 << 18  -- 256 MiB of f32: weights, averages, two moments
local SAVES = 7

-- the saves themselves: one call each, none while the writer works
local function stalls(saver, run, params, seconds)
  local best, began = math.huge, base.now_s()
  state.with_rows(run, params, function(rows) saver:prepare(rows) end)
  for step = 1, SAVES do
    if step > 1 and base.now_s() - began > seconds then
      break
    end
    local at = base.now_s()
    state.with_rows(run, params, function(rows)
      saver:save{step = step, tensors = rows,
        meta = {recipe_hash = "", dataset_fingerprint = "", sampler = "", seed = 0,
        machine = {isa = "", threads = 0, libraries = {}}}}
    end)
    best = math.min(best, base.now_s() - at)
    saver:wait()
  end
  return best
end

-- best of five copies of `bytes`, both sides touched
local function copies(bytes)
  local from, to, best = T.new("u8", {bytes}), T.new("u8", {bytes}), math.huge
  to:copy_from(from)
  for _ = 1, 5 do
    local at = base.now_s()
    to:copy_from(from)
    best = math.min(best, base.now_s() - at)
  end
  return best
end

--- Measure.
---@param options table  seconds: time to spend on the saves
---@return table  bytes, copy_s (one thread, both sides touched), stall_s, limit_s (1.3 x copy + 5
---   ms)
function save.measure(options)
  local device <close> = E.device("cpu", options.threads or 0)
  local params = G.params("f32")
  for i = 1, TENSORS do
    params:add{name = ("t%03d"):format(i), shape = {ELEMENTS}, init = {kind = "zeros"}}
  end
  params:seal()
  local run <close> = E.new(device, params, {regions = regions.adamw{ema = true}})
  run:init(1)
  local copy_s = copies(TENSORS * ELEMENTS * 16)
  local dir = os.tmpname()
  os.remove(dir)
  base.make_dir(dir)
  local ok, result = pcall(function()
    local saver <close> = ckpt.saver(dir)
    return stalls(saver, run, params, options.seconds)
  end)
  base.remove_dir(dir)
  if not ok then
    error(result, 0)
  end
  return {bytes = TENSORS * ELEMENTS * 16, copy_s = copy_s, stall_s = result,
    limit_s = 1.3 * copy_s + 0.005}
end

return save
