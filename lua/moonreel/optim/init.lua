--- The update of a step: one graph over ranges of the flat buffers (reference core, section 2).
-- Global norm, clip, AdamW, EMA, write-back to compute dtype and zeroing of the gradients; formulas
-- of reference opensora-1.2, sections 7.2 and 7.4.
-- @module moonreel.optim
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"
local regions = require "moonreel.optim.regions"

local optim = {}

local ALIGN = 64

--- Elements that are on the device at a time of what lies in host memory, a multiple of 64. Three
-- pieces are there at once: one comes, one is updated, one leaves.
optim.piece = 8 << 20

-- contiguous ranges of trainable parameters with equal decay and learning-rate factor, as far as
-- they lie in [from, to)
local function ranges(params, from, to)
  local list = {}
  for _, p in ipairs(params:list()) do
    if not p.frozen and not p.buffer then
      local decay, factor = p.decay or 1, p.lr_factor or 1
      local last = list[#list]
      local stop = (p.offset + p.count + ALIGN - 1) // ALIGN * ALIGN
      if last and last.decay == decay and last.lr_factor == factor then
        last.stop = stop
      else
        list[#list + 1] = {start = p.offset, stop = stop, decay = decay, lr_factor = factor}
      end
    end
  end
  local inside = {}
  for _, r in ipairs(list) do
    r.start, r.stop = math.max(r.start, from), math.min(r.stop, to)
    if r.start < r.stop then
      inside[#inside + 1] = r
    end
  end
  return inside, #list
end

-- ranges of at most optim.piece elements
local function cut(list)
  local pieces = {}
  for _, r in ipairs(list) do
    for start = r.start, r.stop - 1, optim.piece do
      pieces[#pieces + 1] = setmetatable({start = start,
        stop = math.min(start + optim.piece, r.stop)}, {__index = r})
    end
  end
  return pieces
end

-- Ranges of what lies in host memory come to the device beside the update of the piece before, and
-- leave beside that of the piece after. left: what left last, of each piece.
local function bring(g, row, place, left)
  if row.space ~= "pinned" then
    return place
  end
  return g:queue("h2d", function() return g:move(place, "device", left[#left - 1]) end)
end

local function in_host_memory(rows)
  for _, row in ipairs(rows) do
    if row.space == "pinned" then
      return true
    end
  end
  return false
end

local function send(g, row, value, place)
  return row.space == "pinned" and g:queue("d2h", function() return g:put(value, place) end) or nil
end

local Update = {}
Update.__index = Update

--- Build and compile the update of a run.
---@param run mr.Exec       with the regions of regions.adamw: averages are kept where it has them
---@param params mr.Params  sealed
---@param world mr.Comm|nil ranks that update together (moonreel.optim.ranks)
---@return mr.Update        MR_E_RECIPE when every parameter is frozen
function optim.new(run, params, world)
  local by_role, by_name = {}, {}
  for _, row in ipairs(run:regions()) do
    by_role[row.role], by_name[row.name] = row, row
  end
  local kept = by_role.master or by_role.weights
  local list, trained = ranges(params, kept.start, kept.stop)
  if trained == 0 then
    base.raise("MR_E_RECIPE", ("nothing trains: all %d tensors of the models are frozen; try: "
      .. "without model.only_train_temporal, or models that declare some without frozen = true")
      :format(#params:list()))
  end
  local master, average, w = by_role.master, by_role.average, by_role.weights
  if not master then
    base.raise("MR_E_USAGE",
      "optim.new: the executor has no master; try: {regions = regions.adamw()} when it is made")
  end
  local g = G.graph(params)
  local first, last = list[1], list[#list]
  local hyper = g:input("hyper", "f64", {12})
  local sumsq = world and g:input("sumsq", "f64", {1})
    or (ops.sum_squares(g:region("grad", "f32", first.start, {last.stop - first.start})))
  local kept_rows = {master, by_name[regions.moments[1].name], by_name[regions.moments[2].name],
    average}
  local left = {}
  for _, r in ipairs(in_host_memory(kept_rows) and cut(list) or list) do
    local n, places, here = {r.stop - r.start}, {}, {}
    -- places in a region that is a part count from where it begins
    local function region(row)
      return g:region(row.name, row.dtype, r.start - row.start, n, row.space)
    end
    for i, row in ipairs(kept_rows) do
      places[i] = region(row)
      here[i] = bring(g, row, places[i], left)
    end
    -- ranks copy masters of the weights' own dtype when they gather
    local weights = not master.shared and not (world and w.dtype == master.dtype) and region(w)
    local p, _, m, v, e = ops.adamw(here[1], g:region("grad", "f32", r.start, n), here[2], here[3],
      here[4] or false, weights, hyper, sumsq, {decay = r.decay, lr_factor = r.lr_factor})
    local updated, gone = {p, m, v, e}, nil
    for i, row in ipairs(kept_rows) do
      gone = send(g, row, updated[i], places[i]) or gone
    end
    left[#left + 1] = gone
  end
  if not world then
    g:output("sumsq", sumsq)
  end
  g:finish()
  return setmetatable({run = run, graph = g, prog = run:compile(g),
    ranks = world and require("moonreel.optim.ranks").new(run, params, world, master)}, Update)
end

local read_step = options.declare("update:step", {
  { "lr", "number", "learning rate; required" },
  { "beta1", "number", "required" },
  { "beta2", "number", "required" },
  { "eps", "number", "required" },
  { "weight_decay", "number", "required" },
  { "max_norm", "number", "of the gradient; 0: no limit", default = 0 },
  { "ema_decay", "number", "of the averaged weights", default = 0 },
  { "step", "integer", "its number, from 1; required" },
  { "grad_scale", "number", "1 / sum of the samples' weights; 0: nothing changes; required" },
})

--- Begin one update from what the micro-steps added into the gradients, which become zero. The
-- device decides by the norm of the gradient: where it is not finite - nor is it where a loss was
-- not - only the gradients change.
---@param h table  lr, beta1, beta2, eps, weight_decay, max_norm (0: off), ema_decay, step (from 1);
--   grad_scale: 1 / (sum of the weights of the samples, of all ranks), 0 makes this a step that
--   changes nothing
---@return function  waits for the gradient norm before the clip, and returns it
function Update:start(h)
  h = read_step(h)
  self.prog:set("hyper",
    T.from({12}, {h.lr, h.beta1, h.beta2, h.eps, h.weight_decay, h.max_norm,
    h.ema_decay, h.step, h.grad_scale, 0, 0, 0}, "f64"))
  if self.ranks then
    local sum = self.ranks:reduce()
    self.prog:set("sumsq", T.from({1}, {sum}, "f64"))
    self.prog:run()
    self.ranks:gather()
    return function() return sum ^ 0.5 * h.grad_scale end
  end
  self.prog:run()
  local sumsq = self.prog:fetch("sumsq")
  return function()
    return sumsq:get():totable()[1] ^ 0.5 * h.grad_scale
  end
end

--- Make one update: start, and wait.
---@param h table   as Update:start takes it
---@return number   gradient norm before the clip
function Update:step(h)
  return self:start(h)()
end

return optim
