--- Tokens of Lua source with their lines.
local lexer = require "moonreel.recipe.lexer"

local function texts(source)
  local out = {}
  for i, word in ipairs(lexer.words(source)) do
    out[i] = word.text
  end
  return table.concat(out, " ")
end

describe("lexer.words", function()
  it("leaves out comments of all forms", function()
    assert.equal("a b c d", texts("a --x\nb --[[ y\n z ]] c --[==[ ]] ]==] d -- end"))
  end)

  it("keeps strings whole, whatever they contain", function()
    assert.same({ [["a}\"--"]], [['{']], "[[ ] ]]", "[=[ ]] ]=]" },
      (function()
        local out = {}
        for _, word in ipairs(lexer.words([["a}\"--" '{' [[ ] ]] .. "]] [=[ ]] ]=]")) do
          out[#out + 1] = word.text
        end
        return out
      end)())
  end)

  it("counts lines through long strings, comments and escaped line ends", function()
    local words = lexer.words("a = [[\n\n]]\nb = 'x\\\ny' --[[\n]] c\n'\\z\n  q' d")
    local lines = {}
    for _, word in ipairs(words) do
      lines[word.text] = word.line
    end
    assert.equal(1, lines.a)
    assert.equal(4, lines.b)
    assert.equal(6, lines.c)
    assert.equal(8, lines.d)
  end)

  it("reads numbers with exponents and hexadecimal numbers as one token", function()
    assert.equal("1e-3 + 0x1p-4 - .5 .. 3. , 0xA.8p+1", texts("1e-3+0x1p-4-.5 .. 3., 0xA.8p+1"))
  end)

  it("skips a first line that starts with #", function()
    assert.equal("return 1", texts("#!/usr/bin/env moonreel\nreturn 1"))
  end)
end)
