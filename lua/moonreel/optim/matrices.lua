--- Selects the parameters that Muon updates, and their blocks. A matrix [R, C] is cut into row
-- blocks with the number of elements of a square of the model's width. So q, k and v of a fused
-- projection are separate, and no block depends on the number of ranks. AdamW updates all other
-- parameters.
-- @module moonreel.optim.matrices
local base = require "moonreel.core.base"

local matrices = {}

-- a block consists of whole cache lines in every region
local GRANULE = 64

local function trained(p) return not p.frozen and not p.buffer and #p.shape == 2 end

local function shown(p) return ("'%s' [%d, %d]"):format(p.name, p.shape[1], p.shape[2]) end

-- raises an error if a matrix cannot be cut into row blocks
local function check(p, block)
  local rows = block / p.shape[2]
  if p.count < block then
    base.raise("MR_E_RECIPE", ("optim.muon.parameters: %s is smaller than a block of %d elements, "
      .. "optim.muon.block squared; try: patterns that leave it to AdamW, or a smaller "
      .. "optim.muon.block"):format(shown(p), block))
  elseif rows % 1 ~= 0 or p.shape[1] % rows ~= 0 then
    base.raise("MR_E_RECIPE", ("optim.muon.parameters: %s cannot be cut into row blocks of %d "
      .. "elements, optim.muon.block squared: expected %d rows or a multiple; try: patterns that "
      .. "leave it to AdamW, or another optim.muon.block"):format(shown(p), block,
      math.ceil(rows)))
  end
end

--- Builds the matrices argument of params:seal: names, and elements per block.
---@param list table[]        of params:list()
---@param patterns string[]   Lua patterns that select names
---@param width integer       the square of it is the size of a block
---@return table  matrices, block; MR_E_RECIPE: a pattern that selects no matrix, a matrix that is
---   smaller than a block or cannot be cut into blocks, a width whose square is not a multiple of
---   64
function matrices.choose(list, patterns, width)
  local names, taken, block = {}, {}, width * width
  if block % GRANULE ~= 0 then
    base.raise("MR_E_RECIPE", ("optim.muon.block = %d: expected a multiple of 8"):format(width))
  end
  for _, pattern in ipairs(patterns) do
    local found = false
    for _, p in ipairs(list) do
      if trained(p) and p.name:find(pattern) then
        found = true
        if not taken[p.name] then
          check(p, block)
          taken[p.name], names[#names + 1] = true, p.name
        end
      end
    end
    if not found then
      base.raise("MR_E_RECIPE", ("optim.muon.parameters: '%s' names no matrix that trains; try: a "
        .. "Lua pattern of names, as moonreel ckpt inspect shows them"):format(pattern))
    end
  end
  return {matrices = names, block = block}
end

-- the patterns of the model's family, for the parts that train
local function of_family(pipe)
  local list = {}
  for _, pattern in ipairs(pipe.matrices or {}) do
    for _, p in ipairs(pipe.params:list()) do
      if trained(p) and p.name:find(pattern) then
        list[#list + 1] = pattern
        break
      end
    end
  end
  return list
end

--- How a table is sealed for the optimizer of the settings.
---@param settings table   baked
---@param pipe mr.Pipeline  its parameters, not sealed yet; matrices: patterns of its family
---@param cut table|nil     cut for ranks, of optim.ranks.cut
---@return table|nil        argument of params:seal
function matrices.cut(settings, pipe, cut)
  local muon = settings.optim.muon
  if settings.optim.type ~= "muon" then
    return cut
  end
  local patterns = settings:plain("optim").muon.parameters or of_family(pipe)
  local width = muon.block or (pipe.model.config or {}).hidden_size
  if #patterns == 0 or not width then
    base.raise("MR_E_RECIPE", ("optim.type = muon: model.type = %s does not name matrices for "
      .. "Muon; try: optim.muon.parameters and optim.muon.block, or optim.type = adamw")
      :format(settings.model.type))
  end
  local all = matrices.choose(pipe.params:list(), patterns, width)
  all.ranks, all.elements = cut and cut.ranks, cut and cut.elements
  return all
end

-- factor of an orthogonal update of [rows, cols]
local scales = {
  -- makes the elements of an update as large as those of AdamW: Liu et al. 2025, section 2.2
  match_rms = function(rows, cols) return 0.2 * math.max(rows, cols) ^ 0.5 end,
  -- ref: torch.optim.Muon of 2.15, adjust_lr_fn = "original"
  original = function(rows, cols) return math.max(1, rows / cols) ^ 0.5 end,
}

--- The factor of the update of a block.
---@param name string   match_rms or original
---@param rows integer
---@param cols integer
---@return number
function matrices.scale(name, rows, cols) return scales[name](rows, cols) end

return matrices
