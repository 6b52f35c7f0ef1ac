--- The update of a step: one graph over ranges of the flat buffers (reference core, section 2). It
-- computes the global norm, clips, runs AdamW and EMA, writes the weights in the compute dtype and
-- zeroes the gradients. Formulas: reference opensora-1.2, sections 7.2 and 7.4.
-- @module moonreel.optim
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"
local matrices = require "moonreel.optim.matrices"
local ops = require "moonreel.core.op"
local options = require "moonreel.text.options"
local places = require "moonreel.optim.places"
local regions = require "moonreel.optim.regions"

local optim = {}

local ALIGN = 64

--- The largest piece of state in host memory that is on the device at a time, in elements, a
-- multiple of 64. Three pieces are there at once: one arrives, one is updated, one leaves.
optim.piece = 8 << 20

-- what parameters of one range have in common; matrices have no gaps between them, others have
-- padding
local function group_of(p, since, elements)
  local matrix, stop = p.block > 0, (p.offset + p.count + ALIGN - 1) // ALIGN * ALIGN
  return {start = p.offset, stop = math.min(stop, elements),
    model = p.model, decay = p.decay or 1, lr_factor = p.lr_factor or 1, since = since[p.name] or 0,
    rows = matrix and p.block // p.shape[2] or nil, cols = matrix and p.shape[2] or nil,
    block = matrix and p.block or nil}
end

local function goes_on(last, r)
  for _, key in ipairs{"model", "decay", "lr_factor", "since", "rows", "cols"} do
    if last[key] ~= r[key] then
      return false
    end
  end
  return not r.rows or last.stop == r.start
end

-- contiguous ranges of trained parameters with the same update
local function ranges(params, since)
  local list, elements = {}, params:elements()
  for _, p in ipairs(params:list()) do
    if not p.frozen and not p.buffer then
      list[#list + 1] = group_of(p, since or {}, elements)
    end
  end
  table.sort(list, function(a, b) return a.start < b.start end)
  local joined = {}
  for _, r in ipairs(list) do
    local last = joined[#joined]
    if last and goes_on(last, r) then
      last.stop = r.stop
    else
      joined[#joined + 1] = r
    end
  end
  return joined
end

-- Cuts [from, to) of ranges into pieces of at most optim.piece elements, at block boundaries.
-- Matrices are always cut, because a GPU keeps a copy of them in the arena; others are cut if they
-- are in host memory or have 8-bit moments.
local function cut(list, from, to, moves)
  local pieces = {}
  for _, r in ipairs(list) do
    local most = r.block and math.max(optim.piece // r.block, 1) * r.block
      or moves and optim.piece or math.maxinteger
    local last = math.min(r.stop, to)
    for start = math.max(r.start, from), last - 1, most do
      pieces[#pieces + 1] = setmetatable({start = start,
        stop = math.min(last - start, most) + start}, {__index = r})
    end
  end
  return pieces
end

local Update = {}
Update.__index = Update

-- The node that updates a range. `here` contains its master, first moment, average or false, and
-- second moment; the node returns their new values in the same order.
local function node_of(r, grad, here, weights, by, keep)
  local own = by.models[r.model]
  if r.rows then
    local master, _, first, average = ops.muon(here[1], grad, here[2], here[3], weights,
      own.hyper_muon, own.sumsq, {rows = r.rows, cols = r.cols, decay = r.decay,
      lr_factor = r.lr_factor, keep = keep, nesterov = by.rule.nesterov, bf16 = by.rule.bf16,
      scale = matrices.scale(by.rule.scale, r.rows, r.cols)})
    return {master, first, average}
  end
  local master, _, first, second, average = ops.adamw(here[1], grad, here[2], here[4], here[3],
    weights, own.hyper, own.sumsq, {decay = r.decay, lr_factor = r.lr_factor, since = r.since,
    keep = keep})
  return {master, first, average, second}
end

-- adds the nodes that update [from, to)
local function update(g, kinds, from, to, by)
  local first, second = regions.moments[1], regions.moments[2]
  for _, r in ipairs(cut(by.ranges, from, to, places.moves(kinds))) do
    local master, w = places.row(kinds.master, r), places.row(kinds.w, r)
    local states, here = {}, {}
    for i, kind in ipairs{"master", first.name, "ema", not r.rows and second.name or nil} do
      states[i] = places.state(g, kinds, kind, r, by.left) or false
      here[i] = states[i] and states[i].here
    end
    local weights = master ~= w and not master.shared and places.value(g, w, r)
    -- gradients that are fresh in each micro-step need no zeroing
    local updated, gone = node_of(r, places.value(g, places.row(kinds.grad, r), r), here, weights,
      by, kinds.grad[1].transient), nil
    for i, state in ipairs(states) do
      gone = state and state.put(updated[i]) or gone
    end
    by.left[#by.left + 1] = gone
  end
end

-- the nodes of an update that is shared by ranks
local function update_by_ranks(g, kinds, params, team, by, reduced)
  local moments, w = places.moments(kinds, regions.moments[1]), kinds.w[1]
  local parts = team:owned()
  local sharded = moments[1].start == parts[1].start and moments[1].stop == parts[1].stop
  if sharded and #moments ~= #parts or not sharded and (moments[1].start ~= 0
      or moments[1].stop ~= params:elements()) then
    base.raise("MR_E_USAGE", ("optim.new: the state covers elements %d to %d; expected all, or "
      .. "%d to %d, which rank %d owns first of %d parts"):format(moments[1].start, moments[1].stop,
      parts[1].start, parts[1].stop, team.rank, #parts))
  end
  if not reduced then
    team:reduce(g)
  end
  for _, model in ipairs(by.order) do
    local own = {}
    for i, part in ipairs(team:counted(model)) do
      own[i] = places.value(g, places.row(kinds.grad, part), part)
    end
    model.sumsq = team:sum_squares(g, own)
  end
  for i, bucket in ipairs(team.buckets) do
    if sharded then
      update(g, kinds, parts[i].start, parts[i].stop, by)
      if not team.weights then
        team:gather(g, w.name, w.dtype, i)
      end
    else
      team:gather(g, "grad", "f32", i)
      update(g, kinds, bucket.start, bucket.stop, by)
    end
  end
end

--- What the settings say about the update, as optim.new and update:step take it.
---@param settings table  baked
---@return table|nil      scale, nesterov, bf16: of matrix products; of(lr): muon values for a
---   learning rate; nil: all parameters use AdamW
function optim.rule(settings)
  local o = settings.optim
  if o.type ~= "muon" then
    return nil
  end
  local muon = o.muon
  local lr, decay = muon.lr or o.lr, muon.weight_decay or o.weight_decay
  if o.lr == 0 and lr > 0 then
    base.raise("MR_E_RECIPE", ("optim.muon.lr = %g with optim.lr = 0: both follow lr_schedule in "
      .. "proportion; try: an optim.lr above 0"):format(lr))
  end
  return {scale = muon.scale, nesterov = muon.nesterov, bf16 = muon.products == "bf16",
    of = function(now)
      return {lr = o.lr > 0 and now * (lr / o.lr) or 0, momentum = muon.momentum,
        weight_decay = decay}
    end}
end

-- The models of a table that are updated separately, in order: {number, start, stop} of their
-- ranges.
local function models_of(list)
  local order, by_number = {}, {}
  for _, r in ipairs(list) do
    local model = by_number[r.model]
    if not model then
      model = {number = r.model, start = r.start}
      by_number[r.model], order[#order + 1] = model, model
    end
    model.stop = r.stop
  end
  return order, by_number
end

-- the name of an input or an output of a model
local function named(what, model)
  return model.number == 0 and what or what .. "." .. model.number
end

--- Builds and compiles the update of a run.
---@param run mr.Exec       has the regions of regions.adamw; averages are updated if it has them
---@param params mr.Params  sealed
---@param team mr.Ranks|nil ranks that update together (moonreel.optim.ranks)
---@param reduced boolean|nil  every micro-step ends with the reduction
---@param how table|nil     rule: of optim.rule, if the table has matrices for Muon; since: number
---   of updates before the second moment of a parameter began at zero, by name
---@return mr.Update        MR_E_RECIPE if every parameter is frozen
function optim.new(run, params, team, reduced, how)
  how = how or {}
  local list = ranges(params, how.since)
  if #list == 0 then
    base.raise("MR_E_RECIPE", ("there is nothing to train, because all %d tensors of the models "
      .. "are frozen; try: without model.only_train_temporal, or models that declare some "
      .. "without frozen = true")
      :format(#params:list()))
  end
  local kinds = places.rows(run)
  if not (kinds.master and places.moments(kinds, regions.moments[1])) then
    base.raise("MR_E_USAGE",
      "optim.new: the executor has no region 'master'; try: create it with {regions = "
        .. "regions.adamw()}")
  end
  local g = G.graph(params)
  local by = {left = {}, ranges = list, rule = how.rule}
  local muon = params:matrices() < params:elements()
  by.order, by.models = models_of(list)
  for _, model in ipairs(by.order) do
    model.hyper = g:input(named("hyper", model), "f64", {12})
  end
  if muon then
    by.models[0].hyper_muon = g:input("hyper_muon", "f64", {12})
  end
  if team then
    update_by_ranks(g, kinds, params, team, by, reduced)
  else
    for _, model in ipairs(by.order) do
      model.sumsq = ops.sum_squares(places.value(g, kinds.grad[1], model))
    end
    update(g, kinds, 0, params:elements(), by)
  end
  for _, model in ipairs(by.order) do
    g:output(named("sumsq", model), model.sumsq)
  end
  g:finish()
  return setmetatable({run = run, graph = g, prog = run:compile(g), muon = muon,
    models = by.order}, Update)
end

local read_step = options.declare("update:step", {
  { "lr", "number", "learning rate; required" },
  { "beta1", "number", "required" },
  { "beta2", "number", "required" },
  { "eps", "number", "required" },
  { "weight_decay", "number", "required" },
  { "max_norm", "number", "largest norm of the gradient; 0: no limit", default = 0 },
  { "ema_decay", "number", "decay of the averaged weights", default = 0 },
  { "step", "integer", "number of the update, from 1; required" },
  { "grad_scale", "number", "1 / sum of the samples' weights; 0: the update changes nothing; "
    .. "required" },
  { "most_norm", "number", "a gradient with a larger norm changes nothing; absent: no limit" },
  { "muon", "table", "values for matrices, if there are any: lr, momentum, weight_decay, eps" },
  { "others", "table", "values for further models by number: lr, beta1, beta2, eps, weight_decay",
    default = {} },
})

-- the smallest norm by which a matrix is divided; ref: torch.optim.Muon of 2.15
local LEAST_NORM = 1e-7

--- Begins one update with the gradients that the micro-steps added. The gradients become zero,
-- unless they are fresh in each micro-step. The device checks the norm of the gradient: if it is
-- not finite (which is also so if a loss was not finite) or too large, only the gradients change.
---@param h table  lr, beta1, beta2, eps, weight_decay, max_norm (0: off), ema_decay, step (from 1);
---   grad_scale: 1 / (sum of the weights of the samples of all ranks), 0: the step changes nothing;
---   most_norm: a larger norm also changes nothing
---@return function  waits for the update; returns the gradient norm before clipping, whether it is
---   above most_norm, and the norms of further models by number
function Update:start(h)
  h = read_step(h)
  local per_most = h.most_norm and 1 / h.most_norm or 0
  local function set(name, lr, beta1, beta2, eps, decay)
    self.prog:set(name, T.from({12}, {lr, beta1, beta2, eps, decay, h.max_norm, h.ema_decay, h.step,
      h.grad_scale, per_most, 0, 0}, "f64"))
  end
  for _, model in ipairs(self.models) do
    local own = h.others[model.number] or h
    set(named("hyper", model), own.lr, own.beta1, own.beta2, own.eps, own.weight_decay)
  end
  if self.muon then
    set("hyper_muon", h.muon.lr, h.muon.momentum, 0, h.muon.eps or LEAST_NORM, h.muon.weight_decay)
  end
  self.prog:run()
  local sumsq = {}
  for i, model in ipairs(self.models) do
    sumsq[i] = self.prog:fetch(named("sumsq", model))
  end
  return function()
    local norms = {}
    for i, model in ipairs(self.models) do
      norms[model.number] = math.sqrt(sumsq[i]:get():totable()[1]) * h.grad_scale
    end
    local first = norms[self.models[1].number]
    return first, first * per_most > 1, norms
  end
end

--- Makes one update: start, and wait.
---@param h table   as for Update:start
---@return number   gradient norm before clipping
function Update:step(h)
  return (self:start(h)())
end

return optim
