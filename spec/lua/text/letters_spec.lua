--- Letters in pictures.
local letters = require "moonreel.text.letters"

describe("text.letters", function()
  -- the dots of a text, two pixels each, as lines
  local function drawn(text)
    local dots, width = {}, 0
    letters.write(text, function(x, y)
      dots[y // 2 * 100 + x // 2] = true
      width = math.max(width, x // 2)
    end)
    local lines = {}
    for y = 0, 4 do
      local line = {}
      for x = 0, width do
        line[x + 1] = dots[y * 100 + x] and "#" or "."
      end
      lines[y + 1] = table.concat(line)
    end
    return table.concat(lines, "\n")
  end

  it("are three dots wide and five high, lower case as capitals", function()
    assert.equal(".#....#\n#.#...#\n###..#.\n#.#.#..\n#.#.#..", drawn "a/")
    assert.equal(drawn "HELLO 12.", drawn "hello 12.")
  end)

  it("fill their five rows, no two alike", function()
    local seen = {}
    for letter in ("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"):gmatch "." do
      local picture = drawn(letter)
      assert.matches("^[^\n]*#.*#[^\n]*$", picture)
      assert.matches("#[^\n]*$", picture)
      assert.is_nil(seen[picture])
      seen[picture] = true
    end
  end)

  it("print a box for each unknown character", function()
    assert.equal("...\n###\n#.#\n###\n...", drawn "\u{e4}")
    assert.equal(drawn "\u{e4}\u{4f60}", drawn "~~")
  end)
end)
