--- Histograms of weights and gradients by block. The bins are defined in core/op/histogram.c.
-- @module moonreel.optim.histograms
local G = require "moonreel.core.graph"
local T = require "moonreel.core.tensor"
local ops = require "moonreel.core.op"
local optim = require "moonreel.optim"
local places = require "moonreel.optim.places"
local weights = require "moonreel.optim.weights"

local histograms = {}

-- numbers in a row; index of the bin around zero, from 1
local NUMBERS <const>, ZERO <const> = 500, 249

-- The trained range by blocks, limited to some parts: {block, start, stop, gaps}. A row covers
-- consecutive parameters of a block and the gaps between them, which contain zeros.
local function ranges(params, parts, most)
  local list = {}
  for _, part in ipairs(parts) do
    for _, p in ipairs(params:list()) do
      local start, stop = math.max(p.offset, part.start), math.min(p.offset + p.count, part.stop)
      if not (p.frozen or p.buffer) and start < stop then
        local block, last = weights.block(p.name), list[#list]
        local gap = last and last.part == part and last.block == block and start - last.stop
        -- the matrices of a block are separate from its other parameters
        if gap and gap >= 0 and gap < 64 and stop - last.start <= most then
          last.stop, last.gaps = stop, last.gaps + gap
        else
          for from = start, stop - 1, most do
            list[#list + 1] = { part = part, block = block, start = from,
              stop = math.min(from + most, stop), gaps = 0 }
          end
        end
      end
    end
  end
  return list
end

---@class mr.Histograms
local Histograms = {}
Histograms.__index = Histograms

--- Compiles the program that counts a region of a run.
---@param run mr.Exec
---@param params mr.Params  sealed
---@param kind string       "master" or "grad"
---@param team mr.Ranks|nil ranks that update together; each counts the elements that it owns
---@param reduce boolean|nil  sum the gradients on their owners first
---@return mr.Histograms
function histograms.new(run, params, kind, team, reduce)
  local rows = places.rows(run)[kind]
  local parts = team and team:counted() or { { start = 0, stop = params:elements() } }
  local list = ranges(params, parts, rows[1].space == "pinned" and optim.piece
    or params:elements())
  local g, all = G.graph(params), {}
  local scale = g:input("scale", "f64", { 1 })
  if reduce then
    team:reduce(g)
  end
  for i, range in ipairs(list) do
    local row = places.row(rows, range)
    all[i] = ops.histogram(places.bring(g, row, places.value(g, row, range), all), scale)
  end
  if #list > 0 then
    g:output("all", #all > 1 and G.concat(all, 0) or all[1])
  end
  g:finish()
  return setmetatable({ ranges = list, graph = g, prog = run:compile(g) }, Histograms)
end

--- Counts the elements that this rank owns.
---@param scale number  factor of each element
---@return table<string, number[]>  500 numbers of the row histogram for each block with owned
---   elements
function Histograms:count(scale)
  local by_block = {}
  self.prog:set("scale", T.from({ 1 }, { scale }, "f64"))
  self.prog:run()
  local all = #self.ranges > 0 and self.prog:get("all"):totable()
  for i, range in ipairs(self.ranges) do
    local sums = by_block[range.block] or {}
    by_block[range.block] = sums
    for k = 1, NUMBERS do
      sums[k] = (sums[k] or 0) + all[NUMBERS * (i - 1) + k]
    end
    sums[ZERO] = sums[ZERO] - range.gaps
  end
  return by_block
end

return histograms
