--- A contact sheet: clips of one size in rows, their frames side by side, as one picture.
-- A bar left of each clip says what the measuring program thought of it.
-- @module datasets.demo.sheet
local sheet = {}

local GAP, BAR = 4, 3
local PAPER = { 30, 30, 34 }
local marks = { right = { 60, 180, 80 }, half = { 230, 170, 40 }, wrong = { 200, 50, 50 } }

--- Put clips on one picture.
---@param rows table[][]  rows of {pixels = u8 [T][3][H][W] string, mark = "right" | "half" |
---   "wrong"}
---@param T integer
---@param H integer
---@param W integer
---@return string pixels  u8 [3][height][width]
---@return integer height
---@return integer width
function sheet.compose(rows, T, H, W)
  local columns = 0
  for _, row in ipairs(rows) do
    columns = math.max(columns, #row)
  end
  local clip_width = BAR + T * W + GAP
  local width, height = GAP + columns * clip_width, GAP + #rows * (H + GAP)
  local planes = {}
  for c = 1, 3 do
    local paper = string.char(PAPER[c])
    local lines = {}
    local function blank()
      for _ = 1, GAP do
        lines[#lines + 1] = paper:rep(width)
      end
    end
    blank()
    for _, row in ipairs(rows) do
      for y = 0, H - 1 do
        local line = { paper:rep(GAP) }
        for k = 1, columns do
          local clip = row[k]
          if clip then
            line[#line + 1] = string.char(marks[clip.mark][c]):rep(BAR)
            for t = 0, T - 1 do
              local first = ((t * 3 + c - 1) * H + y) * W
              line[#line + 1] = clip.pixels:sub(first + 1, first + W)
            end
            line[#line + 1] = paper:rep(GAP)
          else
            line[#line + 1] = paper:rep(clip_width)
          end
        end
        lines[#lines + 1] = table.concat(line)
      end
      blank()
    end
    planes[c] = table.concat(lines)
  end
  return table.concat(planes), height, width
end

--- Repeat every pixel `times` x `times`: small clips that a player can show.
---@param pixels string  u8 [n][H][W], n = frames * 3
---@param W integer
---@param times integer
---@return string  u8 [n][H * times][W * times]
function sheet.enlarge(pixels, W, times)
  local out = {}
  for first = 1, #pixels, W do
    local line = pixels:sub(first, first + W - 1):gsub(".", function(p) return p:rep(times) end)
    for _ = 1, times do
      out[#out + 1] = line
    end
  end
  return table.concat(out)
end

return sheet
