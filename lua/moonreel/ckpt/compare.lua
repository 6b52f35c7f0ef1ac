--- Compares a checkpoint with another one, or with the model of a recipe.
-- @module moonreel.ckpt.compare
local names = require "moonreel.ckpt.names"
local start = require "moonreel.ckpt.start"
local listing = require "moonreel.text.listing"
local options = require "moonreel.text.options"

local compare = {}

local function same(a, b) return table.concat(a, ",") == table.concat(b, ",") end

local read_options = options.declare("diff", {
  { "map", "table|function", "renames the tensors of b: {pattern = replacement} or a function" },
  { "pattern", "text", "only matching names; * matches any text" },
})

--- The differences between two checkpoints. Reads both.
---@param given table|nil    map = function(name) or {pattern = replacement} over the names of b;
---   pattern
---@return table rows         {name, problem; only = "a" or "b"; a, b: shape and dtype; differing,
---   of, first, max_abs, relative = |a - b| / |a|}
---@return integer compared   tensors
function compare.diff(a, b, given)
  local o = read_options(given)
  local map = o.map
  local renamed, list, seen, rows = {}, {}, {}, {}
  for _, name in ipairs(b:names()) do
    local as = name
    if type(map) == "function" then
      as = map(name) or name
    elseif map then
      for pattern, replacement in pairs(map) do
        as = as:gsub(pattern, replacement)
      end
    end
    renamed[as] = name
  end
  local function add(name)
    if not seen[name] then
      list[#list + 1] = name
    end
    seen[name] = true
  end
  for _, name in ipairs(a:names()) do
    add(name)
  end
  for name in pairs(renamed) do
    add(name)
  end
  list = names.matching(names.sort(list), o.pattern)
  for _, name in ipairs(list) do
    local x, y = a:info(name), renamed[name] and b:info(renamed[name])
    if not (x and y) then
      local only = x and "a" or "b"
      rows[#rows + 1] = { name = name, problem = "only in " .. only, only = only }
    elseif x.dtype ~= y.dtype or not same(x.shape, y.shape) then
      local is, other = listing.shape(x.shape) .. " " .. x.dtype,
        listing.shape(y.shape) .. " " .. y.dtype
      rows[#rows + 1] = { name = name, problem = is .. " / " .. other, a = is, b = other }
    else
      local d = a:compare(b, name, renamed[name])
      if d.differing > 0 then
        rows[#rows + 1] = { name = name, problem = "differs", differing = d.differing,
          of = d.n, max_abs = d.max_abs, first = d.first,
          relative = d.distance / names.norm(a:stats(name)) }
      end
    end
  end
  return listing.new(rows, { { key = "name" }, { key = "problem" },
    { key = "differing", right = true }, { key = "of", right = true },
    { key = "max_abs", title = "largest", right = true },
    { key = "relative", title = "|a - b| / |a|", right = true } }, #rows == 0
      and ("equal: %d tensors, bit for bit"):format(#list)
        or ("%d of %d tensors differ"):format(#rows, #list)), #list
end

--- Does a checkpoint have the weights of a recipe's model? Rows: missing, unexpected, and shapes
-- that differ.
---@param ckpt mr.Checkpoint
---@param recipe string|table  a recipe's name, or settings
function compare.fits(ckpt, recipe)
  local settings = type(recipe) == "string" and require("moonreel.settings").bake(recipe) or recipe
  local parts = require("moonreel.models.pipeline").of(settings, "bf16")
  local plan, rows = start.plan(ckpt, parts.params:list(), parts.maps), {}
  for _, p in ipairs(parts.params:list()) do
    local found = plan.found[p.name]
    local name = found.weights or found.masters or found.averages
    local info = name and ckpt:info(name)
    -- values that a checkpoint does not store are computed from the recipe
    if not info and not p.buffer and not plan.why_fresh(p.name) then
      rows[#rows + 1] = { name = p.name, problem = "missing", model = p.shape }
    elseif info and not same(info.shape, p.shape) then
      rows[#rows + 1] = { name = p.name, problem = "shape", model = p.shape, file = info.shape }
    end
  end
  for _, name in ipairs(names.sort(plan.unexpected)) do
    rows[#rows + 1] = { name = name, problem = "unexpected", file = ckpt:info(name).shape }
  end
  local note = #rows == 0 and ("fits: %d parameters"):format(#parts.params:list())
    or ("%d problems; the model has %d parameters"):format(#rows, #parts.params:list())
  return listing.new(rows, { { key = "name" }, { key = "problem" },
    { key = "model", format = listing.shape },
    { key = "file", format = listing.shape } }, note)
end

return compare
