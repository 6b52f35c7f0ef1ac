--- Explains latents that are not finite and would be shown as black: finds their cause.
-- @module moonreel.sample.nonfinite
local base = require "moonreel.core.base"
local fill = require "moonreel.ckpt.fill"
local look = require "moonreel.core.look"

local nonfinite = {}

-- The first parameter with weights that are not finite; otherwise the one with the largest weight,
-- because it makes products overflow.
local function suspect(exec, params)
  local most, name = -1, nil
  for _, p in ipairs(params:list()) do
    for _, region in ipairs(exec:regions()) do
      if fill.part(region, p) then
        local found = look.summary(exec:param(region.name, p.name))
        local largest = math.max(math.abs(found.min), math.abs(found.max))
        if found.nonfinite > 0 then
          return ("weights of '%s' are not finite, %d of %d"):format(p.name,
            found.nonfinite, found.n)
        elseif largest > most then
          most, name = largest, p.name
        end
      end
    end
  end
  return ("all weights are finite, so a computation of the model overflows; the largest weight "
    .. "is %.3g, in '%s'"):format(most, name)
end

--- Refuses latents that are not finite. The weights are examined only in that case.
---@param self mr.Sampler
---@param z mr.Tensor     f32 [B, C, t, h, w], after a step
---@param items table[]   items of the request: prompt, seed
---@param step integer    from 1
function nonfinite.refuse(self, z, items, step)
  for b, item in ipairs(items) do
    local found = look.summary(z:slice(0, b - 1, b):reshape { table.unpack(z.shape, 2) })
    if found.nonfinite > 0 then
      base.raise("MR_E_NONFINITE", ("sample: prompt '%s', seed %d: %d of %d numbers of its latents "
        .. "are not finite after step %d, expected finite numbers; in %s %s; try: an earlier "
        .. "checkpoint, dtype=fp32, or a smaller --guidance"):format(item.prompt, item.seed,
        found.nonfinite, found.n, step, self.path, suspect(self.exec, self.pipe.params)))
    end
  end
end

return nonfinite
