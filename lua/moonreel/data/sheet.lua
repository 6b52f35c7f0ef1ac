--- Draws frames of clips in one picture: a line per clip, with frames from the first to the last.
-- @module moonreel.data.sheet
local data = require "moonreel.data"
local letters = require "moonreel.text.letters"

local sheet = {}

local GAP = 4
local GREY = "\40"

-- the largest size with a clip's aspect in a tile; sides are even
local function fit(row, tile)
  local scale = math.min(tile.height / row.height, tile.width / row.width)
  local function side(x) return math.max(8, math.floor(x * scale) // 2 * 2) end
  return side(row.height), side(row.width)
end

-- numbers of frames, from the first to the last
local function spread(frames, wanted)
  local n, list = math.min(frames, wanted), {}
  for i = 0, n - 1 do
    list[i + 1] = n == 1 and 0 or i * (frames - 1) // (n - 1)
  end
  return list
end

-- lines of one tile: lines[channel][y], as wide as the tile, with the frame in the middle
local function tile_lines(pixels, h, w, tile)
  local left, above = (tile.width - w) // 2, (tile.height - h) // 2
  local before, behind = GREY:rep(left), GREY:rep(tile.width - w - left)
  local empty, lines = GREY:rep(tile.width), {}
  for c = 1, 3 do
    lines[c] = {}
    for y = 1, tile.height do
      local inside = y - above
      local at = ((c - 1) * h + inside - 1) * w
      lines[c][y] = inside >= 1 and inside <= h and before .. pixels:sub(at + 1, at + w) .. behind
        or empty
    end
  end
  return lines
end

-- the tiles of a clip; nil and the reason if it cannot be read
local function tiles_of(row, wanted, tile)
  local h, w = fit(row, tile)
  local out = {}
  for i, start in ipairs(spread(row.frames, wanted)) do
    local ok, pixels = pcall(data.decode, row.file, { start = row.start + start, frames = 1,
      height = h, width = w })
    if not ok then
      return nil, tostring(pixels)
    end
    out[i] = tile_lines(pixels, h, w, tile)
  end
  return out
end

-- lines of a text above the frames of a clip, white on black, cut to the width
local function text_lines(text, width)
  local most = (width - 2 * GAP) // letters.width
  local cut = utf8.len(text) and utf8.len(text) > most and text:sub(1, utf8.offset(text, most - 2)
    - 1) .. "..." or text
  local ink, lines = {}, {}
  letters.write(cut:gsub("%c", " "), function(x, y) ink[(y + 1) * width + x + GAP] = true end)
  for y = 0, letters.height + 1 do
    local bytes = {}
    for x = 0, width - 1 do
      bytes[x + 1] = ink[y * width + x] and "\255" or "\0"
    end
    lines[y + 1] = table.concat(bytes)
  end
  return lines
end

--- Writes a PNG with frames of some rows, each below its text.
---@param path string
---@param rows table[]     rows of an index; one without a text has no line for it
---@param given? table     frames: number for each clip (6); height, width: of a tile (96, 160)
---@return table[] failed  {row, why}: clips that cannot be read; their lines are empty
---@return integer height  of the picture
---@return integer width
function sheet.write(path, rows, given)
  local o = given or {}
  local wanted, tile = o.frames or 6, { height = o.height or 96, width = o.width or 160 }
  local width, failed = wanted * (tile.width + GAP) + GAP, {}
  local gap, empty, height = GREY:rep(GAP), GREY:rep(tile.width), GAP
  local planes = { {}, {}, {} }
  local function put(c, line) table.insert(planes[c], line) end
  for _, row in ipairs(rows) do
    local tiles, why = tiles_of(row, wanted, tile)
    if not tiles then
      failed[#failed + 1] = { row = row, why = why }
    end
    local text = (row.text or "") ~= "" and text_lines(row.text, width) or {}
    height = height + #text + tile.height + GAP
    for c = 1, 3 do
      put(c, GREY:rep(width * GAP))
      put(c, table.concat(text))
      for y = 1, tile.height do
        local line = {}
        for i = 1, wanted do
          line[i] = tiles and tiles[i] and tiles[i][c][y] or empty
        end
        put(c, gap .. table.concat(line, gap) .. gap)
      end
    end
  end
  for c = 1, 3 do
    put(c, GREY:rep(width * GAP))
    planes[c] = table.concat(planes[c])
  end
  data.png(path, table.concat(planes), { height = height, width = width })
  return failed, height, width
end

return sheet
