--- Pictures: shown in a terminal (half blocks, or sixel or kitty graphics if the terminal supports
-- them), or saved as PNG. A picture is {width, height, rgb = string of bytes, rows of RGB from the
-- top}.
-- @module moonreel.look.picture
local base = require "moonreel.core.base"
local edit = require "moonreel.core.edit"

local picture = {}

--- Makes a picture from a function of a pixel.
---@param at fun(x: integer, y: integer): integer, integer, integer   x and y from 0; returns bytes
function picture.from(width, height, at)
  local rows = {}
  for y = 0, height - 1 do
    local row = {}
    for x = 0, width - 1 do
      row[x + 1] = string.char(at(x, y))
    end
    rows[y + 1] = table.concat(row)
  end
  return { width = width, height = height, rgb = table.concat(rows) }
end

local function pixel(p, x, y)
  return p.rgb:byte((y * p.width + x) * 3 + 1, (y * p.width + x) * 3 + 3)
end

-- resizes to the nearest pixels, so that only existing values are shown
local function resized(p, width, height)
  if width == p.width and height == p.height then
    return p
  end
  return picture.from(width, height, function(x, y)
    return pixel(p, (x * p.width + p.width // 2) // width, (y * p.height + p.height // 2) // height)
  end)
end

--- Saves as PNG.
---@param path string
function picture.save(p, path)
  local planes = { {}, {}, {} }
  for y = 0, p.height - 1 do
    local row = p.rgb:sub(y * p.width * 3 + 1, (y + 1) * p.width * 3)
    for c = 1, 3 do
      local out = {}
      for x = 0, p.width - 1 do
        out[x + 1] = row:sub(x * 3 + c, x * 3 + c)
      end
      planes[c][y + 1] = table.concat(out)
    end
  end
  local pixels = table.concat(planes[1]) .. table.concat(planes[2]) .. table.concat(planes[3])
  require("moonreel.data").png(path, pixels, { width = p.width, height = p.height })
end

-- ---- the terminal

local found

--- The graphics that the terminal supports: "kitty", "sixel" or "blocks". MOONREEL_GRAPHICS
-- overrides the detection.
function picture.graphics()
  local wish = os.getenv "MOONREEL_GRAPHICS"
  if wish == "kitty" or wish == "sixel" or wish == "blocks" then
    return wish
  end
  if found then
    return found
  end
  found = "blocks"
  if not base.is_terminal(1) then
    return found
  end
  local program = os.getenv "TERM_PROGRAM" or ""
  if os.getenv "KITTY_WINDOW_ID" or os.getenv "TERM" == "xterm-kitty" or program == "ghostty"
      or program == "WezTerm" then
    found = "kitty"
  else
    -- primary device attributes: 4 means sixel
    local answer = edit.ask("\27[c", "c", 0.2)
    if answer == false then
      found = nil
      return "blocks"
    end
    if answer and (answer:match("%[%?([%d;]*)c") or ""):gsub("%d+", ";%0;"):find(";4;",
        1, true) then
      found = "sixel"
    end
  end
  return found
end

local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local function base64(text)
  local out = {}
  for i = 1, #text, 3 do
    local a, b, c = text:byte(i, i + 2)
    local word = a << 16 | (b or 0) << 8 | (c or 0)
    for k = 0, 3 do
      local at = (word >> (18 - 6 * k) & 63) + 1
      out[#out + 1] = (k == 2 and not b or k == 3 and not c) and "=" or digits:sub(at, at)
    end
  end
  return table.concat(out)
end

-- the kitty graphics protocol: raw RGB, in pieces of at most 4096 bytes
local function kitty(p)
  local out, text = {}, base64(p.rgb)
  for i = 1, #text, 4096 do
    local head = i == 1 and ("a=T,f=24,s=%d,v=%d,"):format(p.width, p.height) or ""
    out[#out + 1] = ("\27_G%sm=%d;%s\27\\"):format(head, i + 4096 <= #text and 1 or 0,
      text:sub(i, i + 4095))
  end
  return table.concat(out) .. "\n"
end

-- sixel: bands of six rows, with a palette of 6 x 6 x 6
local function sixel(p)
  local out = { "\27Pq" }
  for i = 0, 215 do
    out[#out + 1] = ("#%d;2;%d;%d;%d"):format(i, i // 36 * 20, i // 6 % 6 * 20, i % 6 * 20)
  end
  for band = 0, p.height - 1, 6 do
    local lines = {}
    for x = 0, p.width - 1 do
      for k = 0, math.min(5, p.height - 1 - band) do
        local r, g, b = pixel(p, x, band + k)
        local colour = (r * 5 + 127) // 255 * 36 + (g * 5 + 127) // 255 * 6 + (b * 5 + 127) // 255
        lines[colour] = lines[colour] or {}
        lines[colour][x] = (lines[colour][x] or 0) | 1 << k
      end
    end
    for colour, line in pairs(lines) do
      out[#out + 1] = "#" .. colour
      local run, last = 0, nil
      local function flush()
        if last then
          out[#out + 1] = run > 3 and ("!%d%s"):format(run, last) or last:rep(run)
        end
      end
      for x = 0, p.width - 1 do
        local c = string.char(63 + (line[x] or 0))
        if c ~= last then
          flush()
          run, last = 0, c
        end
        run = run + 1
      end
      flush()
      out[#out + 1] = "$"
    end
    out[#out + 1] = "-"
  end
  return table.concat(out) .. "\27\\\n"
end

local shades = { " ", "░", "▒", "▓", "█" }

-- two pixels per character: the upper half in the foreground colour, the lower half in the
-- background colour; shades of grey without colours
local function blocks(p, colours)
  local lines = {}
  for y = 0, p.height - 1, 2 do
    local cells = {}
    for x = 0, p.width - 1 do
      local r, g, b = pixel(p, x, y)
      local r2, g2, b2 = 0, 0, 0
      if y + 1 < p.height then
        r2, g2, b2 = pixel(p, x, y + 1)
      end
      if colours then
        cells[x + 1] = ("\27[38;2;%d;%d;%d;48;2;%d;%d;%dm▀"):format(r, g, b, r2, g2, b2)
      else
        local light = (0.299 * (r + r2) + 0.587 * (g + g2) + 0.114 * (b + b2)) / 2
        cells[x + 1] = shades[1 + math.min(4, light * 5 // 255 | 0)]
      end
    end
    lines[#lines + 1] = table.concat(cells) .. (colours and "\27[0m" or "")
  end
  return table.concat(lines, "\n") .. "\n"
end

--- The text that draws a picture, at most as wide as the terminal.
---@param p table
---@param how string|nil  "kitty", "sixel", "blocks"; default: what the terminal supports
---@return string
function picture.text(p, how)
  how = how or picture.graphics()
  if how == "kitty" then
    return kitty(p)
  end
  if how == "sixel" then
    return sixel(p)
  end
  local columns, rows = edit.size()
  local scale = math.min((columns - 1) / p.width, 2 * math.max(8, rows - 4) / p.height, 1)
  local width, height = math.max(1, p.width * scale // 1 | 0),
    math.max(1, p.height * scale // 1 | 0)
  return blocks(resized(p, width, height), require("moonreel.text.table").colours())
end

return picture
