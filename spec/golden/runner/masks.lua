--- Reference files about frame masks: every draw is recorded, so the masks must be equal.
-- @module spec.golden.runner.masks
local base = require "moonreel.core.base"
local mask = require "moonreel.diffusion.mask"
local strategy = require "moonreel.diffusion.strategy"

local PADDING = 2

-- draws of one recorded case; an integer draw must be asked for with the recorded range
local function recorded(f, case, unit, ints, ratio, rand)
  local used = 0
  return {
    unit = function() return unit end,
    int = function(lo, hi)
      local at = used * 3
      used = used + 1
      if ints[at + 1] ~= lo or ints[at + 2] ~= hi then
        base.raise("MR_E_DATA", string.format("%s: case %d draws %d..%d, the reference %d..%d",
          f.path, case, lo, hi,
          ints[at + 1] or -1, ints[at + 2] or -1))
      end
      return ints[at + 3]
    end,
    ratio = function() return ratio end,
    frame = function(i) return rand[i + 1] end,
  }
end

local function rows(f, name)
  local values, width = f:list(name), f.has[name].shape[2] or 1
  return function(i) return table.move(values, i * width + 1, (i + 1) * width, 1, {}) end, width
end

local function mask_generator(f, result)
  local lists = {}
  for i, config in ipairs(f:need("configs")) do
    lists[i] = mask.new(config)
  end
  local case, ints, rand, want = rows(f, "case"), rows(f, "draw_int"), rows(f, "draw_rand"),
    rows(f, "mask")
  local unit, ratio = f:list("draw_type"), f:list("draw_ratio")
  local different = 0
  for i = 0, #unit - 1 do
    local config, T = table.unpack(case(i), 1, 2)
    local m = mask.draw(lists[config + 1], T,
      recorded(f, i, unit[i + 1], ints(i), ratio[i + 1], rand(i)))
    for k, w in ipairs(want(i)) do
      if w ~= (m[k] or PADDING) then
        different = different + 1
      end
    end
  end
  result:exact("mask", different)
end

-- latents and masks that references and a mask_strategy make
local function mask_strategy(f, result)
  for i, case in ipairs(f:need("cases")) do
    local name = ("mask.%d."):format(i - 1)
    local z, references = f:tensor(name .. "z_in"), {}
    while f.has[name .. "ref." .. #references] do
      references[#references + 1] = f:tensor(name .. "ref." .. #references)
    end
    local one = z:reshape{table.unpack(z.shape, 2)}
    local got = strategy.apply(one, strategy.parse(case.strategy), {references = references,
      loop = case.loop, align = type(case.align) == "number" and case.align or nil})
    result:absolute(name .. "z_out", z:totable(), f:list(name .. "z_out"), 0)
    result:absolute(name .. "mask", got:totable(), f:list(name .. "mask"), 0)
  end
end

return {{"^mask_generator", mask_generator}, {"^mask_strategy", mask_strategy}}
