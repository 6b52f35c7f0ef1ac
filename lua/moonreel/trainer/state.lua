--- Everything a checkpoint holds, out of and into an executor.
-- Weights carry the released name; beside them master.NAME (when the compute dtype is not f32),
-- ema.NAME, adam_m.NAME, adam_v.NAME (reference reliability, section 3.1).
-- @module moonreel.trainer.state
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local names = require "moonreel.ckpt.names"

local state = {}

-- regions over the trained range: checkpoint prefix, region, dtype
local function regions(run, dtype)
  local list = {}
  local function add(prefix, region, kind)
    if run:has(region) then
      list[#list + 1] = {prefix = prefix, region = region, dtype = kind}
    end
  end
  if dtype == "f32" then
    add("", run:has("master") and "master" or "w", "f32")
  else
    add("", "w", dtype)
    add("master.", "master", "f32")
  end
  add("ema.", "ema", "f32")
  add("adam_m.", "adam_m", "f32")
  add("adam_v.", "adam_v", "f32")
  return list
end

--- Call f with rows for the saver: one per tensor, pointing into the regions, or where the
-- device keeps them elsewhere into host copies that live as long as the call.
---@param run mr.Exec
---@param params mr.Params
---@param dtype string
---@param f fun(rows: table)
function state.with_rows(run, params, dtype, f)
  local rows, keep = {}, {}
  local function take(prefix, region, kind, frozen)
    local n = params:elements(frozen)
    if n == 0 then
      return
    end
    local host, size = run:host(region)
    local all = host and T.wrap(host, size, kind, {n}, run) or run:read(region, kind, 0, {n})
    if not host then
      keep[#keep + 1] = all
    end
    for _, p in ipairs(params:list()) do
      if p.frozen == frozen then
        local ptr, bytes = all:slice(0, p.offset, p.offset + p.count):ptr()
        rows[#rows + 1] = {name = prefix .. p.name, dtype = kind, shape = p.shape,
          ptr = ptr, bytes = bytes}
      end
    end
  end
  for _, r in ipairs(regions(run, dtype)) do
    take(r.prefix, r.region, r.dtype, false)
  end
  take("", "frozen", dtype, true)
  f(rows)
  if #keep == 0 then
    return
  end
  -- the collector cannot see how large they are
  for i = #keep, 1, -1 do
    keep[i] = nil
  end
  collectgarbage()
end

-- a tensor of a checkpoint, or nil
local function read(source, name)
  local info = source:info(name)
  if not info then
    return nil
  end
  local t = T.new(info.dtype, info.shape)
  source:read(name, t:ptr())
  return t
end

local function same_shape(a, b)
  return table.concat(a, ",") == table.concat(b, ",")
end

--- Load all of a checkpoint; everything must be there with the right shape.
---@param source mr.Checkpoint
function state.load(run, params, dtype, source)
  local function want(name, shape)
    local t = read(source, name)
    if not t then
      base.raise("MR_E_CKPT",
        ("%s: no tensor '%s'; try: --ckpt-path for weights alone"):format(source.path, name))
    end
    if not same_shape(t.shape, shape) then
      base.raise("MR_E_CKPT",
        ("%s: '%s' is [%s], the model of this recipe wants [%s]"):format(source.path, name,
        table.concat(t.shape, ", "), table.concat(shape, ", ")))
    end
    return t
  end
  for _, p in ipairs(params:list()) do
    if p.frozen then
      run:set_param("frozen", p.name, want(p.name, p.shape))
    else
      for _, r in ipairs(regions(run, dtype)) do
        run:set_param(r.region, p.name, want(r.prefix .. p.name, p.shape))
      end
    end
  end
end

--- Load weights alone, what fits; the averages start from them.
---@param prefer string|nil  "ema." or "master.": taken where there, else the weight itself
---@return table report  loaded, missing, unexpected: lists of names
function state.load_weights(run, params, source, prefer)
  local report = {loaded = {}, missing = {}, unexpected = {}}
  local training = run:has("master")
  local known = {}
  for _, p in ipairs(params:list()) do
    known[p.name] = true
    local t = not p.frozen and (prefer and read(source, prefer .. p.name)
      or training and read(source, "master." .. p.name))
      or read(source, p.name)
    if t and same_shape(t.shape, p.shape) then
      run:set_param(training and "master" or "w", p.name, t)
      if run:has("ema") and not p.frozen then
        run:set_param("ema", p.name, t)
      end
      report.loaded[#report.loaded + 1] = p.name
    else
      report.missing[#report.missing + 1] = p.name
    end
  end
  for _, name in ipairs(source:names()) do
    local _, parameter = names.kind(name)
    if not known[parameter] then
      report.unexpected[#report.unexpected + 1] = name
    end
  end
  if training then
    run:refresh()
  end
  return report
end

return state
