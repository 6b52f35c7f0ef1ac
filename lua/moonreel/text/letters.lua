--- Letters for pictures: capital letters, digits and signs of 3 x 5 dots each.
-- @module moonreel.text.letters
local letters = {}

-- rows from the top, as bits
local glyphs = { ["0"] = { 7, 5, 5, 5, 7 }, ["1"] = { 2, 6, 2, 2, 7 }, ["2"] = { 7, 1, 7, 4, 7 },
  ["3"] = { 7, 1, 7, 1, 7 }, ["4"] = { 5, 5, 7, 1, 1 }, ["5"] = { 7, 4, 7, 1, 7 },
  ["6"] = { 7, 4, 7, 5, 7 }, ["7"] = { 7, 1, 1, 1, 1 }, ["8"] = { 7, 5, 7, 5, 7 },
  ["9"] = { 7, 5, 7, 1, 7 }, ["-"] = { 0, 0, 7, 0, 0 }, ["."] = { 0, 0, 0, 0, 2 },
  ["+"] = { 0, 2, 7, 2, 0 }, [","] = { 0, 0, 0, 2, 4 }, [":"] = { 0, 2, 0, 2, 0 },
  ["/"] = { 1, 1, 2, 4, 4 }, ["("] = { 1, 2, 2, 2, 1 }, [")"] = { 4, 2, 2, 2, 4 },
  ["="] = { 0, 7, 0, 7, 0 }, ["_"] = { 0, 0, 0, 0, 7 }, ["'"] = { 2, 2, 0, 0, 0 },
  ['"'] = { 5, 5, 0, 0, 0 }, ["!"] = { 2, 2, 2, 0, 2 }, ["?"] = { 7, 1, 2, 0, 2 },
  ["%"] = { 5, 1, 2, 4, 5 },
  A = { 2, 5, 7, 5, 5 }, B = { 6, 5, 6, 5, 6 }, C = { 3, 4, 4, 4, 3 }, D = { 6, 5, 5, 5, 6 },
  E = { 7, 4, 6, 4, 7 }, F = { 7, 4, 6, 4, 4 }, G = { 3, 4, 5, 5, 3 }, H = { 5, 5, 7, 5, 5 },
  I = { 7, 2, 2, 2, 7 }, J = { 1, 1, 1, 5, 2 }, K = { 5, 5, 6, 5, 5 }, L = { 4, 4, 4, 4, 7 },
  M = { 5, 7, 7, 5, 5 }, N = { 6, 5, 5, 5, 5 }, O = { 2, 5, 5, 5, 2 }, P = { 6, 5, 6, 4, 4 },
  Q = { 2, 5, 5, 6, 3 }, R = { 6, 5, 6, 5, 5 }, S = { 3, 4, 2, 1, 6 }, T = { 7, 2, 2, 2, 2 },
  U = { 5, 5, 5, 5, 7 }, V = { 5, 5, 5, 5, 2 }, W = { 5, 5, 7, 7, 5 }, X = { 5, 5, 2, 5, 5 },
  Y = { 5, 5, 2, 2, 2 }, Z = { 7, 1, 2, 4, 7 } }
local OTHER <const> = { 0, 7, 5, 7, 0 } -- shown for characters without a glyph

--- Width and height of a letter in pixels, with its margin; a dot is 2 x 2 pixels.
letters.width, letters.height = 8, 10

--- Writes a text: calls put(x, y) for each pixel of its letters; (0, 0) is the upper left corner.
---@param text string  UTF-8; small letters are written as capitals
---@param put fun(x: integer, y: integer)
function letters.write(text, put)
  local at = 0
  for _, code in utf8.codes(text, true) do
    local letter = code < 128 and string.char(code):upper() or ""
    local rows = letter ~= " " and (glyphs[letter] or OTHER) or {}
    for r, row in ipairs(rows) do
      for bit = 0, 2 do
        for dot = 0, (row >> (2 - bit) & 1) == 1 and 3 or -1 do
          put(at + bit * 2 + dot % 2, (r - 1) * 2 + dot // 2)
        end
      end
    end
    at = at + letters.width
  end
end

return letters
