--- The cost of a checkpoint: the call of an asynchronous save against a plain copy of the same
-- state (Ref: reliability.md, promise P7), and verifying it against reading it.
-- @module moonreel.bench.save
local E = require "moonreel.core.exec"
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ckpt = require "moonreel.ckpt"
local core = require "moonreel.core.bench"
local paired = require "moonreel.bench.paired"
local regions = require "moonreel.optim.regions"
local state = require "moonreel.trainer.state"
local temporary = require "moonreel.data.temporary"

local save = {}

local TENSORS, ELEMENTS = 64, 1 << 18  -- 256 MiB of f32: weights, averages, two moments
local SAVES = 7

-- the saves themselves: one call each, none while the writer works
local function stalls(saver, run, params, seconds)
  local best, began = math.huge, base.now_s()
  saver:prepare(state.rows(run, params))
  for step = 1, SAVES do
    if step > 1 and base.now_s() - began > seconds then
      break
    end
    local at = base.now_s()
    saver:save{step = step, tensors = state.rows(run, params),
      meta = {recipe_hash = "", dataset_fingerprint = "", sampler = "", seed = 0,
      machine = {isa = "", threads = 0, libraries = {}}}}
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

-- verify and the same reads without comparing, in turn; before each of them the page cache forgets
-- the files where they shall come from the disk
local function readings(c, cold, seconds)
  local cpu = {}
  local function timed(name)
    return function()
      for _, file in ipairs(cold and base.list_dir(c.path) or {}) do
        core.forget_file(c.path .. "/" .. file)
      end
      local at, used = base.now_s(), core.cpu_s()
      c.handle[name](c.handle)
      cpu[name] = math.min(cpu[name] or math.huge, core.cpu_s() - used)
      return base.now_s() - at
    end
  end
  local verify, touch = table.unpack(paired.rounds({timed "verify", timed "touch"}, seconds))
  local function rate(s) return c.bytes / s end
  return {from = cold and "disk" or "page cache", verify_rate = rate(paired.median(verify)),
    read_rate = rate(paired.median(touch)), share = paired.ratio(touch, verify),
    cpu_rate = rate(cpu.verify)}
end

--- Measure.
---@param options table  seconds: time to spend on the saves, and on each kind of reading; dir:
---   where the run is made for the time being, a new folder
---@return table  bytes, copy_s (one thread, both sides touched), stall_s, limit_s (1.3 x copy + 5
---   ms); readings: {from, verify_rate, read_rate, share (of the time of a verify that reading
---   takes), cpu_rate (per second of processor)}, bytes per second
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
  local dir <close> = temporary.folder(options.dir)
  local saver <close> = ckpt.saver(dir.path)
  local stall_s = stalls(saver, run, params, options.seconds)
  local c <close> = ckpt.newest(dir.path)
  return {bytes = TENSORS * ELEMENTS * 16, copy_s = copy_s, stall_s = stall_s,
    limit_s = 1.3 * copy_s + 0.005,
    readings = {readings(c, false, options.seconds), readings(c, true, options.seconds)}}
end

return save
