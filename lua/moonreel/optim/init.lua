--- The update of a step: one graph over ranges of the flat buffers (reference core, section 2).
-- Global norm, clip, AdamW, EMA, write-back to compute dtype and zeroing of the gradients; formulas
-- of reference opensora-1.2, sections 7.2 and 7.4.
-- @module moonreel.optim
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"
local places = require "moonreel.optim.places"
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

-- rows that update what lies in [from, to)
local function update(g, kinds, params, from, to, by)
  local m, v = kinds[regions.moments[1].name], kinds[regions.moments[2].name]
  local list = ranges(params, from, to)
  for _, r in ipairs(in_host_memory(m) and cut(list) or list) do
    local w = places.row(kinds.w, r)
    local rows, values, here = {places.row(kinds.master, r), places.row(m, r), places.row(v, r),
      places.row(kinds.ema, r)}, {}, {}
    for i, row in ipairs(rows) do
      values[i] = places.value(g, row, r)
      here[i] = places.bring(g, row, values[i], by.left)
    end
    local weights = rows[1] ~= w and not rows[1].shared and places.value(g, w, r)
    local master, _, first, second, average = ops.adamw(here[1],
      places.value(g, places.row(kinds.grad, r), r), here[2], here[3], here[4] or false,
      weights, by.hyper, by.sumsq, {decay = r.decay, lr_factor = r.lr_factor,
      -- fresh ones begin at zero by themselves
      keep = kinds.grad[1].transient})
    local updated, gone = {master, first, second, average}, nil
    for i, row in ipairs(rows) do
      gone = send(g, row, updated[i], values[i]) or gone
    end
    by.left[#by.left + 1] = gone
  end
end

-- the nodes of an update by ranks
local function update_by_ranks(g, kinds, params, team, by, reduced)
  local moments, w = kinds[regions.moments[1].name], kinds.w[1]
  local parts, own = team:owned(), {}
  local sharded = moments[1].start == parts[1].start and moments[1].stop == parts[1].stop
  if sharded and #moments ~= #parts or not sharded and (moments[1].start ~= 0
      or moments[1].stop ~= params:elements()) then
    base.raise("MR_E_USAGE", ("optim.new: state of elements %d to %d: expected all, or %d to %d, "
      .. "which rank %d owns first of %d parts"):format(moments[1].start, moments[1].stop,
      parts[1].start, parts[1].stop, team.rank, #parts))
  end
  if not reduced then
    team:reduce(g)
  end
  for i, part in ipairs(parts) do
    own[i] = places.value(g, places.row(kinds.grad, part), part)
  end
  by.sumsq = team:sum_squares(g, own)
  for i, bucket in ipairs(team.buckets) do
    if sharded then
      update(g, kinds, params, parts[i].start, parts[i].stop, by)
      if not team.weights then
        team:gather(g, w.name, w.dtype, i)
      end
    else
      team:gather(g, "grad", "f32", i)
      update(g, kinds, params, bucket.start, bucket.stop, by)
    end
  end
end

--- Build and compile the update of a run.
---@param run mr.Exec       with the regions of regions.adamw: averages are kept where it has them
---@param params mr.Params  sealed
---@param team mr.Ranks|nil ranks that update together (moonreel.optim.ranks)
---@param reduced boolean|nil  every micro-step ends with the reduction
---@return mr.Update        MR_E_RECIPE when every parameter is frozen
function optim.new(run, params, team, reduced)
  local list, trained = ranges(params, 0, params:elements())
  if trained == 0 then
    base.raise("MR_E_RECIPE", ("nothing trains: all %d tensors of the models are frozen; try: "
      .. "without model.only_train_temporal, or models that declare some without frozen = true")
      :format(#params:list()))
  end
  local kinds = places.rows(run)
  if not (kinds.master and kinds[regions.moments[1].name]) then
    base.raise("MR_E_USAGE",
      "optim.new: the executor has no master; try: {regions = regions.adamw()} when it is made")
  end
  local g = G.graph(params)
  local by = {hyper = g:input("hyper", "f64", {12}), left = {}}
  if team then
    update_by_ranks(g, kinds, params, team, by, reduced)
  else
    local first, last = list[1], list[#list]
    local all = {start = first.start, stop = last.stop}
    by.sumsq = ops.sum_squares(places.value(g, kinds.grad[1], all))
    update(g, kinds, params, 0, params:elements(), by)
  end
  g:output("sumsq", by.sumsq)
  g:finish()
  return setmetatable({run = run, graph = g, prog = run:compile(g)}, Update)
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
  { "most_norm", "number", "a gradient above it changes nothing; absent: none is" },
})

--- Begin one update from what the micro-steps added into the gradients, which become zero unless
-- they are fresh in each micro-step. The
-- device decides by the norm of the gradient: where it is not finite - nor is it where a loss was
-- not - or too large, only the gradients change.
---@param h table  lr, beta1, beta2, eps, weight_decay, max_norm (0: off), ema_decay, step (from 1);
--   grad_scale: 1 / (sum of the weights of the samples, of all ranks), 0 makes this a step that
--   changes nothing; most_norm: above it nothing changes either
---@return function  waits for the gradient norm before the clip, and returns it, and whether it is
---   above most_norm
function Update:start(h)
  h = read_step(h)
  local per_most = h.most_norm and 1 / h.most_norm or 0
  self.prog:set("hyper",
    T.from({12}, {h.lr, h.beta1, h.beta2, h.eps, h.weight_decay, h.max_norm,
    h.ema_decay, h.step, h.grad_scale, per_most, 0, 0}, "f64"))
  self.prog:run()
  local sumsq = self.prog:fetch("sumsq")
  return function()
    local norm = math.sqrt(sumsq:get():totable()[1]) * h.grad_scale
    return norm, norm * per_most > 1
  end
end

--- Make one update: start, and wait.
---@param h table   as Update:start takes it
---@return number   gradient norm before the clip
function Update:step(h)
  return (self:start(h)())
end

return optim
