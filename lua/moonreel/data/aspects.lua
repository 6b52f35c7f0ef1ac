--- Sizes of Open-Sora 2.0: turns a name such as 256px, 360p, 512px_ar1:1 or 1024px_max into a table
-- of sizes by aspect, computed on a grid. Ref: opensora-2.0.md 10.1.
-- @module moonreel.data.aspects
local base = require "moonreel.core.base"

local aspects = {}

-- width to height, in the order that decides ties
local ratios = { "2.39:1", "2:1", "16:9", "1.85:1", "9:16", "5:8", "3:2", "4:3", "1:1" }

local function parts(name)
  local w, h = name:match("^([%d.]+):([%d.]+)$")
  return tonumber(w), tonumber(h)
end

local function swapped(name) return (name:gsub("^(.*):(.*)$", "%2:%1")) end

-- of sizes one grid step away, the one that is strictly closer to `pixels` pixels
local function nearest_size(h, w, pixels, grid)
  local best = { h, w }
  for _, c in ipairs { { h - grid, w }, { h + grid, w }, { h, w - grid }, { h, w + grid } } do
    if math.abs(c[1] * c[2] - pixels) < math.abs(best[1] * best[2] - pixels) then
      best = c
    end
  end
  return best[1], best[2]
end

-- sets a row; rows keep the order of their first entry
local function set(list, name, h, w)
  for _, row in ipairs(list) do
    if row.name == name then
      row.height, row.width = h, w
      return
    end
  end
  list[#list + 1] = { name = name, height = h, width = w }
end

local function holds(list, h, w)
  for _, row in ipairs(list) do
    if row.height == h and row.width == w then
      return true
    end
  end
  return false
end

--- Sizes of about `pixels` pixels.
---@param pixels integer
---@param grid integer      sides are multiples of it: 16, or 32 with high compression
---@param training boolean  moves sizes closer to the number of pixels, and lists each only once
---@return table[] rows  {name ("16:9", width to height), height, width}
function aspects.sizes(pixels, grid, training)
  local list, turned = {}, {}
  for _, name in ipairs(ratios) do
    local a, b = parts(name)
    local w = grid * (math.sqrt(pixels * (a / b)) // grid)
    local h = grid * (pixels / w // grid)
    if training then
      h, w = nearest_size(h, w, pixels, grid)
    end
    h, w = math.tointeger(h), math.tointeger(w)
    if not training or not holds(list, h, w) then
      set(list, name, h, w)
      set(turned, swapped(name), w, h)
    end
  end
  for _, row in ipairs(turned) do
    set(list, row.name, row.height, row.width)
  end
  return list
end

--- A resolution by its name; nil for other names, and for sizes smaller than the grid.
---@param name string
---@param grid? integer  16
---@return table|nil  {name, pixels, aspects = rows from aspects.sizes for training}
function aspects.resolution(name, grid)
  local n, unit, setting = name:match("^(%d+)(px?)(.*)$")
  n = math.tointeger(n)
  if not n or n < 1 or n > 65535 then
    return nil
  end
  local pixels = unit == "px" and n * n or math.floor(n * n / 9 * 16)
  local rows = aspects.sizes(pixels, grid or 16, true)
  for _, row in ipairs(rows) do
    if (row.height or 0) == 0 or (row.width or 0) == 0 then
      return nil  -- a side shorter than the grid
    end
  end
  local wanted = setting:match("^_ar(.+)$")
  local kept = {}
  if setting == "_max" then
    for _, row in ipairs(rows) do
      if not kept[1] or row.height * row.width > kept[1].height * kept[1].width then
        kept[1] = row
      end
    end
  elseif setting ~= "" then
    for _, row in ipairs(rows) do
      kept[#kept + 1] = row.name == wanted and row or nil
    end
    if #kept == 0 then
      base.raise("MR_E_RECIPE", ("resolution '%s': expected NAME, NAME_max or NAME_arW:H with an "
        .. "aspect of the table"):format(name))
    end
  else
    kept = rows
  end
  return { name = name, pixels = pixels, aspects = kept }
end

--- The row whose aspect is nearest to a sample's height over width; the first one in a tie.
---@param rows table[]  from aspects.sizes
---@param height integer
---@param width integer
---@return table row
function aspects.nearest(rows, height, width)
  local best, off = nil, math.huge
  for _, row in ipairs(rows) do
    local a, b = parts(row.name)
    local distance = math.abs(b / a - height / width)
    if distance < off then
      best, off = row, distance
    end
  end
  return best
end

return aspects
