--- Measures weights after an update, by block: their norm, the ratio of the update's norm to it,
-- the share of dead units, the distance to the average. Formulas: core/op/weight_sums.c. Sums are
-- in double precision, one parameter after the other. Sums of ranks are added in the order of
-- ranks, so another number of ranks may change last bits, which the journal does not show.
-- @module moonreel.optim.weights
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ops = require "moonreel.core.op"
local optim = require "moonreel.optim"
local options = require "moonreel.text.options"
local places = require "moonreel.optim.places"
local regions = require "moonreel.optim.regions"

local weights = {}

local SUMS <const> = 5 -- number of sums of weight_sums, for each range

--- The block of a parameter: its name up to the first number, which layers have
-- ("spatial_blocks.3"); else the first word ("final_layer").
---@param name string
---@return string
function weights.block(name)
  local at, words = {}, 0
  for word in name:gmatch "[^.]+" do
    words = words + 1
    at[words] = word
    if word:find "^%d+$" then
      return table.concat(at, ".")
    end
  end
  return at[1]
end

-- ranges of trained parameters, limited to some parts: {param, start, stop}
local function ranges(params, parts, most)
  local list = {}
  for _, p in ipairs(params:list()) do
    for _, part in ipairs(not (p.frozen or p.buffer) and parts or {}) do
      local stop = math.min(p.offset + p.count, part.stop)
      for start = math.max(p.offset, part.start), stop - 1, most do
        list[#list + 1] = { param = p, start = start, stop = math.min(start + most, stop) }
      end
    end
  end
  return list
end

-- Does each row of a parameter belong to a unit? Yes for a matrix of a layer. No for tables of
-- tokens or positions, whose rows have no gradient if no sample uses them.
local function has_units(p)
  return #p.shape > 1 and not p.lookup and p.name:find "%f[%w]weight$" ~= nil
end

-- The sums of a range; done: sums of earlier ranges; since: as for optim.new. The update of
-- matrices without a second moment cannot be computed from the first one; nor from 8-bit moments,
-- whose small values have rounding errors as large as they are.
local function sums_of(g, kinds, range, hyper, done, since)
  local p, here = range.param, {}
  local m, v = regions.moments[1].name, regions.moments[2].name
  for i, kind in ipairs { "master", "ema", m, v } do
    local row = (i < 3 or p.block == 0) and places.row(kinds[kind], range)
    here[i] = row and places.bring(g, row, places.value(g, row, range), done) or false
  end
  -- a rank cannot judge rows of which other ranks have a part
  local whole = not p.cut or p.cut.axis == 0
  local cols = here[4] and whole and has_units(p) and T.count(p.shape) // p.shape[1] or 0
  return ops.weight_sums(here[1], here[2], here[3], here[4], hyper, { decay = p.decay or 1,
    lr_factor = p.lr_factor or 1, since = since and since[p.name] or 0, cols = cols,
    before = cols > 0 and (range.start - p.offset) % cols or 0 })
end

---@class mr.WeightWatch
local Watch = {}
Watch.__index = Watch

--- Compiles the program that measures the weights of a run. It reads the state after an update and
-- writes nothing.
---@param run mr.Exec       as for optim.new
---@param params mr.Params  sealed
---@param team mr.Ranks|nil ranks that update together; each measures what it owns
---@param since table|nil   parameters whose second moment began later, as for optim.new
---@return mr.WeightWatch
function weights.new(run, params, team, since)
  local kinds = places.rows(run)
  local all = { { start = 0, stop = params:elements() } }
  local list = ranges(params, team and team:counted() or all,
    places.moves(kinds) and optim.piece or params:elements())
  local reported = kinds[regions.moments[1].name] ~= nil
  local self, blocks = setmetatable({ blocks = {}, of_range = {}, untold = {} }, Watch), {}
  for _, p in ipairs(params:list()) do
    local name = weights.block(p.name)
    if not (p.frozen or p.buffer or blocks[name]) then
      self.blocks[#self.blocks + 1] = name
      blocks[name] = #self.blocks
    end
    if p.block > 0 or not reported then
      self.untold[name], self.untold.all = true, true
    end
  end
  if #list == 0 then
    return self
  end
  local g, sums = G.graph(params), {}
  local hyper = g:input("hyper", "f64", { 12 })
  for i, range in ipairs(list) do
    self.of_range[i] = blocks[weights.block(range.param.name)]
    sums[i] = sums_of(g, kinds, range, hyper, sums, since)
  end
  g:output("sums", #sums > 1 and G.concat(sums, 0) or sums[1])
  g:finish()
  self.graph, self.prog = g, run:compile(g)
  return self
end

local read = options.declare("weights:sums", {
  { "lr", "number", "of the last update; required" },
  { "beta1", "number", "required" },
  { "beta2", "number", "required" },
  { "eps", "number", "required" },
  { "weight_decay", "number", "required" },
  { "step", "integer", "number of the update, from 1; required" },
})

--- Measures what this rank owns, after an update that changed something.
---@param given table  values of the last such update: lr, beta1, beta2, eps, weight_decay, step
---   (from 1)
---@return number[]    five sums of weight_sums for each of self.blocks
function Watch:sums(given)
  local h, by_block = read(given), {}
  for i = 1, SUMS * #self.blocks do
    by_block[i] = 0
  end
  if not self.prog then
    return by_block
  end
  self.prog:set("hyper", T.from({ 12 }, { h.lr, h.beta1, h.beta2, h.eps, h.weight_decay, 0, 0,
    h.step, 0, 0, 0, 0 }, "f64"))
  self.prog:run()
  local sums = self.prog:get("sums"):totable()
  for i, block in ipairs(self.of_range) do
    for k = 1, SUMS do
      local at = SUMS * (block - 1) + k
      by_block[at] = by_block[at] + sums[SUMS * (i - 1) + k]
    end
  end
  return by_block
end

-- the ratio of two numbers; nil: it is undefined
local function over(a, b) return b > 0 and a / b or nil end

-- untold: a part of the block has an unknown update
local function facts(name, w, u, off, rows, dead, averaged, untold)
  local norm = w ^ 0.5
  return { name = name, norm = norm, dead = over(dead, rows),
    update_ratio = not untold and over(u ^ 0.5, norm) or nil,
    ema_drift = averaged and over(off ^ 0.5, norm) or nil }
end

--- Computes facts from the sums of all ranks.
---@param sums number[]     sums of Watch:sums, added over ranks
---@param averaged boolean  the run has averaged weights
---@return table[]          for each block, then for all: {name, norm, update_ratio, dead,
---   ema_drift}; the last three are shares, nil if undefined
function Watch:facts(sums, averaged)
  local list, all = {}, { 0, 0, 0, 0, 0 }
  for i, name in ipairs(self.blocks) do
    local own = table.move(sums, SUMS * (i - 1) + 1, SUMS * i, 1, {})
    list[i] = facts(name, own[1], own[2], own[3], own[4], own[5], averaged,
      self.untold[name])
    for k = 1, SUMS do
      all[k] = all[k] + own[k]
    end
  end
  list[#list + 1] = facts("all", all[1], all[2], all[3], all[4], all[5], averaged,
    self.untold.all)
  return list
end

return weights
