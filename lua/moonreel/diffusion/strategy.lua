--- Conditions of a rendering: which latent frames are taken from references, and how strictly. Ref:
-- opensora-1.2.md 3.2.
-- @module moonreel.diffusion.strategy
local T = require "moonreel.core.tensor"
local base = require "moonreel.core.base"

local strategy = {}

local NAMES = { "loop", "reference", "reference start", "target start", "length", "edit" }
local DEFAULTS = { 0, 0, 0, 0, 1, 0.0 }

local function refuse(group, text, ...)
  base.raise("MR_E_USAGE", ("mask_strategy, group %d '%s': %s"):format(group.at, group.text,
    string.format(text, ...)))
end

-- checks a group by itself
local function check(group)
  if group.loop < 0 or group.reference < 0 then
    local field = group.loop < 0 and "loop" or "reference"
    refuse(group, "%s %d; expected 0 or more", field, group[field])
  elseif group.length < 1 then
    refuse(group, "length %d; expected 1 or more", group.length)
  elseif not (group.edit >= 0 and group.edit <= 1) then
    refuse(group, "edit %s; expected 0 (kept) to 1", tostring(group.edit))
  end
end

--- Parses the groups of a text: LOOP,REFERENCE,REFERENCE START,TARGET START,LENGTH,EDIT;... Missing
-- fields at the end of a group are those of 0,0,0,0,1,0.
---@param text string|nil
---@return table[]  groups {loop, reference, from, to, length, edit, at, text}
function strategy.parse(text)
  local groups = {}
  if not text or text == "" then
    return groups
  end
  for part in (text .. ";"):gmatch("([^;]*);") do
    local group, fields = { at = #groups + 1, text = part }, {}
    for word in (part .. ","):gmatch("%s*([^,]-)%s*,") do
      local i = #fields + 1
      local value = tonumber((word:match("^[+-]?%d*%.?%d*$")))
      if i < 6 then
        value = math.tointeger(value)
      end
      if i > 6 or not value then
        refuse(group, i > 6 and "more than 6 fields" or "%s is '%s'; expected a %snumber", NAMES[i],
          word, i < 6 and "whole " or "")
      end
      fields[i] = value
    end
    for i = #fields + 1, 6 do
      fields[i] = DEFAULTS[i]
    end
    group.loop, group.reference, group.from, group.to, group.length = table.unpack(fields, 1, 5)
    group.edit = fields[6] + 0.0
    check(group)
    groups[#groups + 1] = group
  end
  return groups
end

--- The group by which a loop continues from the end of the previous clip, which is its last
-- reference.
---@param loop integer
---@param reference integer  number of the clip among the references, from 0
---@param length integer     latent frames
---@param edit number
---@return table group
function strategy.continue(loop, reference, length, edit)
  local text = ("%d,%d,%d,0,%d,%g"):format(loop, reference, -length, length, edit)
  return strategy.parse(text)[1]
end

--- The multiple of `step` nearest to a place (the lower one in a tie), with a whole piece of the
-- clip after it.
---@param place integer
---@param step integer
---@param frames integer  frames of the clip
---@return integer
function strategy.snap(place, step, frames)
  local k = place // step
  if place % step > step / 2 and k < frames // step - 1 then
    k = k + 1
  end
  return k * step
end

-- a start counted from the front or, below zero, from the end
local function start(group, name, value, frames, align)
  local at = value < 0 and frames + value or value
  if at < 0 or at >= frames then
    refuse(group, "%s %d lies outside %d latent frames", name, value, frames)
  end
  return align and strategy.snap(at, align, frames) or at
end

--- Copies the frames that the groups of a loop take from references into latents.
---@param z mr.Tensor       latents [C, T, H, W] of one rendering; changed in place
---@param groups table[]    from strategy.parse
---@param options table     references: latents [C, T', H, W] in order; loop, from 0; align: starts
---   are rounded to multiples of it
---@return mr.Tensor mask   f32 [T]: 1 is rendered, 0 kept; values in between: how much is edited
function strategy.apply(z, groups, options)
  local frames, align = z.shape[2], options.align
  local values = {}
  for i = 1, frames do
    values[i] = 1
  end
  for _, group in ipairs(groups) do
    if group.loop == options.loop then
      local reference = options.references[group.reference + 1]
      if not reference then
        refuse(group, #options.references == 0 and "reference %d, but there are no references; "
          .. "try: --reference-path FILE" or "reference %d, but there are only %d, counted from 0",
          group.reference, #options.references)
      end
      if align and frames > align and frames % align ~= 0 then
        refuse(group, "align %d does not divide %d latent frames", align, frames)
      end
      local from = start(group, "reference start", group.from, reference.shape[2], align)
      local to = start(group, "target start", group.to, frames, align)
      local n = math.min(group.length, frames - to, reference.shape[2] - from)
      z:slice(1, to, to + n):copy_from(reference:slice(1, from, from + n))
      for i = to + 1, to + n do
        values[i] = group.edit
      end
    end
  end
  return T.from({ frames }, values)
end

return strategy
