--- The measuring program: finds colour and direction of a moving shape, from pixels alone.
-- It knows no caption, no file and no training. A clip in which nothing is found gives nil and the
-- reason.
-- @module datasets.demo.measure
local measure = {}

-- below this distance from the background (0..441) a pixel is background: codec noise and blur stay
-- under it
local NEAR = 56
-- fewer foreground pixels than this share of the frame is no shape; more than the other is no
-- background
local LEAST, MOST = 0.01, 0.60
-- a colour weaker than this (largest minus smallest channel, 0..255) is a grey
local GREY = 48
-- a shape that moves less than this share of the frame rests; a direction leads the other axis by
-- the factor
local REST, LEAD = 0.10, 1.5

-- hue in degrees -> name; each reaches 30 degrees to both sides
local hues = { [0] = "red", "yellow", "green", "cyan", "blue", "magenta" }

local function median(values)
  table.sort(values)
  return values[(#values + 1) // 2]
end

-- channel medians over the outermost two pixels of all frames: the shape is there at most for a
-- moment
local function background_of(frames, T, H, W)
  local colour = {}
  for c = 0, 2 do
    local ring = {}
    for t = 0, T - 1 do
      local plane = (t * 3 + c) * H * W
      for y = 0, H - 1 do
        local outer = y < 2 or y >= H - 2
        local row = { frames:byte(plane + y * W + 1, plane + (y + 1) * W) }
        for x = 1, outer and W or math.min(2, W) do
          ring[#ring + 1] = row[x]
        end
        for x = outer and W + 1 or math.max(3, W - 1), W do
          ring[#ring + 1] = row[x]
        end
      end
    end
    colour[c + 1] = median(ring)
  end
  return colour
end

-- places of the largest connected group (four neighbours) of marked pixels
local function largest_group(far, H, W)
  local best, best_weight = {}, 0
  local seen = {}
  local function reach(group, j)
    if j and far[j] and far[j] > 0 and not seen[j] then
      seen[j] = true
      group[#group + 1] = j
    end
  end
  for start = 1, H * W do
    if far[start] > 0 and not seen[start] then
      local group, weight = { start }, 0
      seen[start] = true
      local at = 1
      while at <= #group do
        local i = group[at]
        at, weight = at + 1, weight + far[i]
        local x = (i - 1) % W
        reach(group, x > 0 and i - 1)
        reach(group, x < W - 1 and i + 1)
        reach(group, i - W)
        reach(group, i + W)
      end
      if weight > best_weight then
        best, best_weight = group, weight
      end
    end
  end
  return best
end

-- one frame: weighted centre and summed colour of its shape, or nil
local function shape_of(frames, t, H, W, back)
  local n = H * W
  local first = t * 3 * n
  local far, byte = {}, string.byte
  local red, green, blue = back[1], back[2], back[3]
  for i = 1, n do
    local r, g, b = byte(frames, first + i) - red, byte(frames, first + n + i) - green,
      byte(frames, first + 2 * n + i) - blue
    local square = r * r + g * g + b * b
    far[i] = square > NEAR * NEAR and math.sqrt(square) or 0
  end
  local group = largest_group(far, H, W)
  if #group < LEAST * n or #group > MOST * n then
    return nil
  end
  local shape = { weight = 0, x = 0, y = 0, rgb = { 0, 0, 0 }, rgb_weight = 0 }
  for _, i in ipairs(group) do
    local d = far[i]
    shape.weight = shape.weight + d
    shape.x = shape.x + d * ((i - 1) % W + 0.5)
    shape.y = shape.y + d * ((i - 1) // W + 0.5)
    -- the squared distance lets the shape's inside speak louder than its blended edge
    for c = 1, 3 do
      shape.rgb[c] = shape.rgb[c] + d * d * frames:byte(first + (c - 1) * n + i)
    end
    shape.rgb_weight = shape.rgb_weight + d * d
  end
  shape.x, shape.y = shape.x / shape.weight, shape.y / shape.weight
  return shape
end

-- slope of `axis` over time by least squares, each frame weighted by how much shape it shows
local function slope(found, axis)
  local s, st, sv = 0, 0, 0
  for _, f in ipairs(found) do
    s, st, sv = s + f.weight, st + f.weight * f.t, sv + f.weight * f[axis]
  end
  local mt, mv, stt, stv = st / s, sv / s, 0, 0
  for _, f in ipairs(found) do
    stt, stv = stt + f.weight * (f.t - mt) ^ 2, stv + f.weight * (f.t - mt) * (f[axis] - mv)
  end
  return stt > 0 and stv / stt or 0
end

--- Name of a colour by its hue; nil for greys.
---@param r number 0..255
---@param g number
---@param b number
---@return string|nil
function measure.colour_name(r, g, b)
  local high, low = math.max(r, g, b), math.min(r, g, b)
  local chroma = high - low
  if chroma < GREY then
    return nil
  end
  local hue
  if high == r then
    hue = (g - b) / chroma % 6
  elseif high == g then
    hue = (b - r) / chroma + 2
  else
    hue = (r - g) / chroma + 4
  end
  return hues[math.floor(hue + 0.5) % 6]
end

--- What moves in a clip.
---@param frames string u8 sRGB, layout [T][3][H][W]
---@param T integer frames; with one frame there is no direction
---@param H integer
---@param W integer
---@return table|nil found  colour (name or nil), direction (name or nil: rests, or no clear axis),
---   dx, dy (pixels
---                         over the whole clip, y downwards), rgb
---@return string|nil why   when nothing is found
function measure.find(frames, T, H, W)
  if #frames ~= T * 3 * H * W then
    error(("measure.find: %d bytes, expected %d for [%d][3][%d][%d]"):format(#frames,
      T * 3 * H * W, T, H, W), 2)
  end
  local back = background_of(frames, T, H, W)
  local found = {}
  for t = 0, T - 1 do
    local shape = shape_of(frames, t, H, W, back)
    if shape then
      shape.t = t
      found[#found + 1] = shape
    end
  end
  if #found * 2 <= T then
    return nil, ("a shape stands out in %d of %d frames"):format(#found, T)
  end

  local rgb, weight = { 0, 0, 0 }, 0
  for _, f in ipairs(found) do
    for c = 1, 3 do
      rgb[c] = rgb[c] + f.rgb[c]
    end
    weight = weight + f.rgb_weight
  end
  for c = 1, 3 do
    rgb[c] = rgb[c] / weight
  end

  local dx, dy = slope(found, "x") * (T - 1), slope(found, "y") * (T - 1)
  local direction
  if math.abs(dx) >= REST * W and math.abs(dx) >= LEAD * math.abs(dy) then
    direction = dx > 0 and "right" or "left"
  elseif math.abs(dy) >= REST * H and math.abs(dy) >= LEAD * math.abs(dx) then
    direction = dy > 0 and "down" or "up"
  end
  return { colour = measure.colour_name(rgb[1], rgb[2], rgb[3]), direction = direction,
    dx = dx, dy = dy, rgb = rgb }
end

return measure
