--- Pixels of one scene: a flat shape that crosses a flat background, anti-aliased.
-- In: a scene of datasets.demo.world. Out: u8 RGB frames [T][3][H][W] as one string.
-- @module datasets.demo.render
local world = require "datasets.demo.world"

local render = {}

-- every pixel is the mean of SUB x SUB points
local SUB = 4

-- inside tests around the centre of the bounding box, in units of the half size
local inside = {
  circle = function(x, y) return x * x + y * y <= 1 end,
  square = function(x, y) return x >= -0.92 and x <= 0.92 and y >= -0.92 and y <= 0.92 end,
  triangle = function(x, y) return y <= 0.9 and math.abs(x) <= (y + 0.9) / 1.8 end,
}

local function lookup(rows, name)
  for _, row in ipairs(rows) do
    if row[1] == name then
      return row[2]
    end
  end
  error(("datasets.demo.render: unknown name '%s'"):format(tostring(name)), 2)
end

--- Share of each pixel that the shape covers.
---@param shape string
---@param cx number   centre, pixels from the left edge of the frame
---@param cy number   centre, pixels from the upper edge
---@param half number half size, pixels
---@param H integer
---@param W integer
---@return number[]   H * W values 0..1, row by row
---@return integer y0  the first row that it may touch, from 0
---@return integer y1  the last one
function render.coverage(shape, cx, cy, half, H, W)
  local test = assert(inside[shape], "unknown shape")
  local cover = {}
  for i = 1, H * W do
    cover[i] = 0
  end
  local y0, y1 = math.max(0, math.floor(cy - half)), math.min(H - 1, math.ceil(cy + half))
  local x0, x1 = math.max(0, math.floor(cx - half)), math.min(W - 1, math.ceil(cx + half))
  for y = y0, y1 do
    for x = x0, x1 do
      local hits = 0
      for sy = 0, SUB - 1 do
        local py = (y + (sy + 0.5) / SUB - cy) / half
        for sx = 0, SUB - 1 do
          if test((x + (sx + 0.5) / SUB - cx) / half, py) then
            hits = hits + 1
          end
        end
      end
      cover[y * W + x + 1] = hits / (SUB * SUB)
    end
  end
  return cover, y0, y1
end

--- How a scene moves: everything that varies between two clips of the same words.
---@param scene table   of world.scenes
---@param seed integer
---@param H integer
---@param W integer
---@return table  size, cx, cy (middle of the path), dx, dy (whole travel), colour, background;
---   pixels and 0..255
function render.path(scene, seed, H, W)
  local function between(low, high, what)
    return low + (high - low) * world.draw(seed, what, scene.id)
  end
  local colour, background = {}, {}
  local shade = between(-8, 8, "shade")
  for c, v in ipairs(lookup(world.colours, scene.colour)) do
    colour[c] = math.max(0, math.min(255, v + between(-8, 8, "colour" .. c)))
  end
  for c, v in ipairs(lookup(world.backgrounds, scene.background)) do
    background[c] = v + shade
  end
  local side = math.min(H, W)
  local step = scene.direction and lookup(world.directions, scene.direction) or { 0, 0 }
  -- shapes of 10 to 14 pixels at 32, crossing near the centre over 36 to 50 % of the frame; the
  -- path's middle lies closer to the frame's along the way, so that the shape never leaves
  local off_x, off_y = step[1] ~= 0 and 1 or 2, step[2] ~= 0 and 1 or 2
  return {
    size = between(10, 14, "size") * side / 32,
    cx = W / 2 + between(-off_x, off_x, "x") * side / 32,
      cy = H / 2 + between(-off_y, off_y, "y") * side / 32,
    dx = step[1] * between(0.36, 0.50, "travel") * W,
      dy = step[2] * between(0.36, 0.50, "travel") * H,
    colour = colour, background = background,
  }
end

-- share of its travel that a shape goes which begins in the middle: its middle stays inside
local OUTWARDS = 0.7

--- The frames of a scene.
---@param scene table   of world.scenes; without a direction the shape rests in the middle, with
---   `outwards` it begins there, so that its first frame does not tell where it goes
---@param seed integer
---@param T integer     frames
---@param H integer
---@param W integer
---@return string  T * 3 * H * W bytes, sRGB, layout [T][3][H][W]
function render.frames(scene, seed, T, H, W)
  local path = render.path(scene, seed, H, W)
  local out = {}
  for t = 0, T - 1 do
    local along = T > 1 and (scene.outwards and OUTWARDS * t / (T - 1) or t / (T - 1) - 0.5) or 0
    local cover, y0, y1 = render.coverage(scene.shape, path.cx + along * path.dx,
      path.cy + along * path.dy, path.size / 2, H, W)
    for c = 1, 3 do
      local back, front = path.background[c], path.colour[c]
      local empty = string.char(math.floor(back + 0.5)):rep(W)
      for y = 0, H - 1 do
        local row = {}
        for x = 1, y >= y0 and y <= y1 and W or 0 do
          row[x] = math.floor(back + (front - back) * cover[y * W + x] + 0.5)
        end
        out[#out + 1] = row[1] and string.char(table.unpack(row)) or empty
      end
    end
  end
  return table.concat(out)
end

return render
